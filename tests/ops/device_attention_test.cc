// Attention on a CUDA device against the CPU. A block of the kernels has a tile of 32 rows and 64 columns, and products
// take 32 elements at a time: the cases have fewer, just as many and more rows, keys and columns of a head.
#include <cmath>

#include "ops/device_cases.h"

namespace lmx::testing {
namespace {

class DeviceAttention : public OnDevice {};

using Lengths = std::vector<int64_t>;

struct Sizes {
  Lengths queries, keys;
  int64_t heads, kv_heads, size;
};

const Sizes kSizes[] = {
    {{3, 1, 4}, {2, 5, 1}, 4, 2, 3},                // less than a tile
    {{32, 33, 0, 64}, {64, 65, 0, 129}, 2, 2, 32},  // whole tiles, and one row more; a sequence without rows
    {{70, 1}, {7, 200}, 2, 1, 33},       // many tiles of keys, and a sequence that is far shorter than the other
    {{5, 0, 17}, {5, 9, 17}, 3, 3, 65},  // two blocks for the columns of a head; keys without queries
    {{1}, {1}, 1, 1, 1},
    {{0}, {0}, 1, 1, 2},
};
// Lengths and head sizes of causal attention.
const Sizes kCausal[] = {{{100, 1, 0, 32, 33}, {}, 4, 2, 5}, {{3, 65}, {}, 2, 1, 70}};

AttentionOptions options_of(const Sizes& s, double p, const std::vector<uint64_t>& ids) {
  AttentionOptions o;
  o.heads = s.heads;
  o.kv_heads = s.kv_heads;
  o.dropout = p;
  o.key = RandomKey(5);
  o.row_ids = ids;
  return o;
}

int64_t rows_of(const Lengths& lengths) {
  return Segments::of(lengths).begin.back();
}

std::vector<uint64_t> ids_of(int64_t rows) {
  std::vector<uint64_t> ids;
  for (int64_t i = 0; i < rows; ++i) ids.push_back((uint64_t{1} << 33) + 3 * static_cast<uint64_t>(i));
  return ids;
}

OpCase across(const Sizes& s, double p) {
  const int64_t n = rows_of(s.queries), m = rows_of(s.keys), width = s.kv_heads * s.size;
  return {
      "attention",
      str("across ", n, " queries, ", m, " keys of ", s.size, ", dropout ", p),
      [=](Context& c, const Vars& v) {
        const std::vector<uint64_t> ids = ids_of(n);
        return attention(c, {v[0], v[1], v[2], Segments::of(s.queries), Segments::of(s.keys)}, options_of(s, p, ids));
      },
      {{n, s.heads * s.size}, {m, width}, {m, width}}};
}

OpCase causal(const Sizes& s, double p) {
  const int64_t n = rows_of(s.queries);
  return {"attention",
          str("causal ", n, " rows of ", s.size, ", dropout ", p),
          [=](Context& c, const Vars& v) {
            const std::vector<uint64_t> ids = ids_of(n);
            AttentionOptions o = options_of(s, p, ids);
            o.causal = true;
            return attention(c, v[0], Segments::of(s.queries), o);
          },
          {{n, (s.heads + 2 * s.kv_heads) * s.size}}};
}

void expect_equal_everywhere(const OpCase& c) {
  expect_equal(c, DType::f64, 1e-12);
  expect_equal(c, DType::f32, 2e-5);
}

TEST_F(DeviceAttention, EveryTile) {
  for (const double p : {0.0, 0.3}) {
    for (const Sizes& s : kSizes) {
      expect_equal_everywhere(across(s, p));
      if (HasFatalFailure()) return;
    }
    for (const Sizes& s : kCausal) {
      expect_equal_everywhere(causal(s, p));
      if (HasFatalFailure()) return;
    }
  }
}

// Operands are rounded as for a matrix product. The CPU rounds weights that are divided by their sum, the device such
// that are not, so results differ by a rounding.
TEST_F(DeviceAttention, MixedPrecision) {
  for (const OpCase& c : {across(kSizes[2], 0.3), causal(kCausal[0], 0)}) {
    expect_equal(c, DType::f32, 2e-2, DType::bf16);
    expect_equal(c, DType::f32, 2e-3, DType::f16);
    if (HasFatalFailure()) return;
  }
}

// A bias with -Inf: for the first tile of keys of some queries, and for all keys of query 2.
TEST_F(DeviceAttention, BiasesOfSeveralTiles) {
  const Sizes s{{40, 3}, {150, 9}, 2, 2, 5};
  const std::vector<Shape> shapes{{40, 150}, {2, 41, 151}, {2, 1, 40, 150}, {2, 2, 40, 150}};
  for (const bool hide : {false, true}) {
    for (const Shape& shape : shapes) {
      OpCase c = across(s, 0.2);
      c.name += str(", bias ", shape, hide ? " with hidden keys" : "");
      c.inputs.push_back(shape);
      c.result = [=](Context& ctx, const Vars& v) {
        std::vector<double> hidden(static_cast<size_t>(shape.numel()));
        const int64_t keys = shape[shape.rank() - 1], queries = shape[shape.rank() - 2];
        for (size_t k = 0; hide && k < hidden.size(); ++k) {
          const int64_t i = static_cast<int64_t>(k) / keys % queries, j = static_cast<int64_t>(k) % keys;
          if (i == 2 || (i % 3 == 1 && j < 70 && j != 1)) hidden[k] = -INFINITY;
        }
        const Tensor mask = Tensor::from<double>(ctx.host, shape, hidden).to(v[3].value().dtype());
        const std::vector<uint64_t> ids = ids_of(43);
        AttentionOptions o = options_of(s, 0.2, ids);
        o.bias = add(ctx, v[3], Var(ctx.upload(copy_to(mask, ctx.host))));
        return attention(ctx, {v[0], v[1], v[2], Segments::of(s.queries), Segments::of(s.keys)}, o);
      };
      expect_equal_everywhere(c);
      if (HasFatalFailure()) return;
    }
  }
}

// Gradients of operands that use the same columns are added up, in kernels that run one after the other.
TEST_F(DeviceAttention, OneVariableAsEveryOperand) {
  const Segments s = Segments::of(Lengths{40, 7});
  const OpCase c{"attention",
                 "one variable",
                 [=](Context& ctx, const Vars& v) {
                   AttentionOptions o;
                   o.heads = 2;
                   return attention(ctx, {v[0], v[0], v[0], s, s}, o);
                 },
                 {{47, 10}}};
  expect_equal_everywhere(c);
}

// No sum depends on the order in which blocks run: two runs have the same bits.
TEST_F(DeviceAttention, SameBitsInEveryRun) {
  for (const OpCase& c : {across(kSizes[2], 0.3), causal(kCausal[0], 0.3)})
    EXPECT_EQ(run_on(c, kDevice, DType::f32, DType::f32), run_on(c, kDevice, DType::f32, DType::f32));
}

}  // namespace
}  // namespace lmx::testing
