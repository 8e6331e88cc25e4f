// Calls of attention on the CPU and on a CUDA device.
#pragma once

#include <cmath>

#include "ops/device_values.h"

namespace lmx::testing {

using Lengths = std::vector<int64_t>;

struct Sizes {
  Lengths queries, keys;
  int64_t heads, kv_heads, size;
};

inline AttentionOptions options_of(const Sizes& s, double p, const std::vector<uint64_t>& ids) {
  AttentionOptions o;
  o.heads = s.heads;
  o.kv_heads = s.kv_heads;
  o.dropout = p;
  o.key = RandomKey(5);
  o.row_ids = ids;
  return o;
}

inline int64_t sum_of(const Lengths& lengths) {
  return Segments::of(lengths).begin.back();
}

inline std::vector<uint64_t> ids_of(int64_t rows) {
  std::vector<uint64_t> ids;
  for (int64_t i = 0; i < rows; ++i) ids.push_back((uint64_t{1} << 33) + 3 * static_cast<uint64_t>(i));
  return ids;
}

inline OpCase across(const Sizes& s, double p) {
  const int64_t n = sum_of(s.queries), m = sum_of(s.keys), width = s.kv_heads * s.size;
  return {
      "attention",
      str("across ", n, " queries, ", m, " keys of ", s.size, ", dropout ", p),
      [=](Context& c, const Vars& v) {
        const std::vector<uint64_t> ids = ids_of(n);
        return attention(c, {v[0], v[1], v[2], Segments::of(s.queries), Segments::of(s.keys)}, options_of(s, p, ids));
      },
      {{n, s.heads * s.size}, {m, width}, {m, width}}};
}

inline OpCase causal(const Sizes& s, double p) {
  const int64_t n = sum_of(s.queries);
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

// Biases of each shape, also with -Inf: for the first tile of keys of some queries, and for all keys of query 2.
inline std::vector<OpCase> biased() {
  const Sizes s{{40, 3}, {150, 9}, 2, 2, 5};
  std::vector<OpCase> cases;
  for (const bool hide : {false, true}) {
    for (const Shape& shape : {Shape{40, 150}, Shape{2, 41, 151}, Shape{2, 1, 40, 150}, Shape{2, 2, 40, 150}}) {
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
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

// Two heads of q, k and v: each of them is one of `operands` variables (47, width), the last one if there are fewer.
// The lengths of the two sequences are those of queries, and of keys.
inline OpCase with_variables(size_t operands, int64_t width, const Lengths& queries = {40, 7},
                             const Lengths& keys = {40, 7}) {
  return {
      "attention", str(operands, " variables of ", width, " columns"),
      [=](Context& ctx, const Vars& v) {
        AttentionOptions o;
        o.heads = 2;
        return attention(ctx, {v[0], v[operands > 1 ? 1 : 0], v.back(), Segments::of(queries), Segments::of(keys)}, o);
      },
      std::vector<Shape>(operands, {47, width})};
}

}  // namespace lmx::testing
