#include "lstm_op.h"

#include <gtest/gtest.h>

#include "lmx/error.h"
#include "lmx/lstm_cell.h"
#include "lmx/matmul.h"
#include "ops/gradcheck.h"

namespace lmx::lstm {
namespace {

using lmx::testing::f64_leaf;
using lmx::testing::f64_tensor;

struct Case {
  int64_t steps, batch, input, cells, projection;
};

class LstmOp : public ::testing::TestWithParam<Case> {};

// A weighted sum, so that every output has a gradient of its own.
Var weighted(Context& ctx, const Var& y) {
  return sum(ctx, multiply(ctx, y, Var(f64_tensor(y.shape(), 99))));
}

TEST_P(LstmOp, GradientsMatchDifferences) {
  const Case c = GetParam();
  const int64_t out = c.projection ? c.projection : c.cells;
  std::vector<Var> leaves{f64_leaf({c.steps * c.batch, c.input}, 1, "x"),
                          f64_leaf({4 * c.cells, c.input}, 2, "w_ih", 0.5),
                          f64_leaf({4 * c.cells, out}, 3, "w_hh", 0.5), f64_leaf({4 * c.cells}, 4, "bias")};
  if (c.projection) leaves.push_back(f64_leaf({out, c.cells}, 5, "w_hr", 0.5));
  const std::vector<Tensor> start{f64_tensor({c.batch, out}, 6), f64_tensor({c.batch, c.cells}, 7)};
  lmx::testing::gradcheck(
      [&](Context& ctx, const std::vector<Var>& v) {
        std::vector<Tensor> state = start;
        const LayerWeights w{v[1], v[2], v[3], v.size() > 4 ? v[4] : Var()};
        return weighted(ctx, lstm_layer(ctx, v[0], w, state, {0.7, {}}));
      },
      leaves);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LstmOp,
                         ::testing::Values(Case{4, 3, 5, 6, 2}, Case{1, 1, 1, 1, 0}, Case{3, 1, 2, 4, 4},
                                           Case{5, 2, 1, 3, 0}, Case{2, 4, 3, 1, 1}, Case{1, 3, 4, 5, 2}));

TEST_F(LstmOp, StateCarriesOver) {
  Context ctx;
  const auto leaf = [&](Shape shape, uint64_t seed) { return Var(f64_tensor(shape, seed, 0.5)); };
  const LayerWeights w{leaf({16, 3}, 1), leaf({16, 2}, 2), leaf({16}, 3), leaf({2, 4}, 4)};
  ctx.compute = DType::f64;
  const Tensor x = f64_tensor({6 * 2, 3}, 5);
  const auto start = [&] { return std::vector<Tensor>{ctx.zeros({2, 2}, DType::f64), ctx.zeros({2, 4}, DType::f64)}; };
  std::vector<Tensor> whole = start(), halves = start();
  const Tensor y = lstm_layer(ctx, Var(x), w, whole, {}).value();
  const Tensor first = lstm_layer(ctx, Var(x.slice(0, 6)), w, halves, {}).value();
  const Tensor second = lstm_layer(ctx, Var(x.slice(6, 12)), w, halves, {}).value();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(y.data<double>()[i], first.data<double>()[i]);
    EXPECT_EQ(y.data<double>()[12 + i], second.data<double>()[i]);
  }
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(whole[1].data<double>()[i], halves[1].data<double>()[i]);
}

// f32, bf16 and f16 forward and gradients stay close to f64's, each within its own rounding.
TEST_F(LstmOp, EveryPrecisionFollowsF64) {
  const auto run = [](DType compute) {
    Context ctx;
    Tape tape;
    ctx.compute = compute;
    ctx.tape = &tape;
    const DType type = compute == DType::f64 ? DType::f64 : DType::f32;
    const auto leaf = [&](Shape shape, uint64_t seed, const char* name) {
      return Var(f64_tensor(shape, seed, 0.3).to(type), true, name);
    };
    const Var x = leaf({8 * 4, 16}, 1, "x");
    const LayerWeights w{leaf({96, 16}, 2, "w_ih"), leaf({96, 12}, 3, "w_hh"), leaf({96}, 4, "b"),
                         leaf({12, 24}, 5, "w_hr")};
    std::vector<Tensor> state{ctx.zeros({4, 12}, type), ctx.zeros({4, 24}, type)};
    const Var y = lstm_layer(ctx, x, w, state, {1.0, {}});
    tape.backward(ctx, sum(ctx, multiply(ctx, y, Var(f64_tensor(y.shape(), 9).to(type)))));
    std::vector<std::vector<double>> out{lmx::testing::dense_gradient(x), lmx::testing::dense_gradient(w.w_ih),
                                         lmx::testing::dense_gradient(w.w_hh), lmx::testing::dense_gradient(w.bias),
                                         lmx::testing::dense_gradient(w.w_hr)};
    const Tensor value = y.value().to(DType::f64);
    out.emplace_back(value.data<double>(), value.data<double>() + value.numel());
    return out;
  };
  const auto want = run(DType::f64);
  const std::pair<DType, double> limits[] = {{DType::f32, 3e-6}, {DType::bf16, 3e-2}, {DType::f16, 4e-3}};
  for (const auto& [type, limit] : limits) {
    const auto got = run(type);
    for (size_t k = 0; k < want.size(); ++k) {
      double largest = 0, error = 0;
      for (size_t i = 0; i < want[k].size(); ++i) {
        largest = std::max(largest, std::abs(want[k][i]));
        error = std::max(error, std::abs(want[k][i] - got[k][i]));
      }
      EXPECT_LE(error, limit * largest) << name_of(type) << " tensor " << k;
      EXPECT_GT(largest, 0) << k;
    }
  }
}

// Training and validating take batches of different sizes; a weight is packed again only for another layout.
TEST_F(LstmOp, AWeightIsPackedOnceForABatchOfAnySize) {
  Context ctx;
  const auto leaf = [&](Shape shape, uint64_t seed) { return Var(f64_tensor(shape, seed, 0.3).to(DType::f32)); };
  const LayerWeights w{leaf({256, 16}, 1), leaf({256, 32}, 2), leaf({256}, 3), leaf({32, 64}, 4)};
  // Packed copies count in the memory of the weights' owner.
  const auto bytes = [&] {
    return w.w_hh.value().allocator()->stats().current[static_cast<size_t>(MemClass::parameters)];
  };
  const auto packed_bytes = [&](int64_t batch) {
    std::vector<Tensor> state{ctx.zeros({batch, 32}), ctx.zeros({batch, 64})};
    const Tensor x = f64_tensor({3 * batch, 16}, 5).to(DType::f32);
    lstm_layer(ctx, Var(x), w, state, {});
    return bytes();
  };
  const int64_t before = bytes();
  const int64_t once = packed_bytes(32);
  EXPECT_GT(once, before);
  for (const int64_t batch : {7, 1, 32}) {
    if (PackedMatrix::layout(ctx, w.w_hh.value(), true, batch) != PackedMatrix::layout(ctx, w.w_hh.value(), true, 32) ||
        PackedMatrix::layout(ctx, w.w_hr.value(), true, batch) != PackedMatrix::layout(ctx, w.w_hr.value(), true, 32)) {
      continue;
    }
    EXPECT_EQ(packed_bytes(batch), once) << batch;
  }
}

TEST_F(LstmOp, ErrorsNameEveryShape) {
  Context ctx;
  std::vector<Tensor> state{ctx.zeros({2, 3}), ctx.zeros({2, 4})};
  const LayerWeights w{Var(ctx.zeros({16, 5})), Var(ctx.zeros({16, 3})), Var(ctx.zeros({16})), Var(ctx.zeros({3, 4}))};
  try {
    lstm_layer(ctx, Var(ctx.zeros({4, 6})), w, state, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[lstm] x (4, 6), w_ih (16, 5), w_hh (16, 3), bias (16), w_hr (3, 4), h (2, 3), c (2, 4): x and w_ih "
                 "differ in the input size");
  }
  EXPECT_THROW(lstm_layer(ctx, Var(ctx.zeros({3, 5})), w, state, {}), UserError);
}

}  // namespace
}  // namespace lmx::lstm
