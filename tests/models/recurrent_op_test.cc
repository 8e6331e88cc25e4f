// The sequence ops of every recurrent cell: gradients, carried state, precisions, segments, checkpoints.
#include <functional>

#include "lmx/error.h"
#include "lmx/lstm_cell.h"
#include "lmx/matmul.h"
#include "lstm_op.h"
#include "mlstm_kernels.h"
#include "mlstm_op.h"
#include "ops/gradcheck.h"
#include "ops/messages.h"
#include "rhn_kernels.h"
#include "rhn_op.h"

namespace lmx::testing {

using namespace lmx_test;

// y of leaves (x first), from a state that becomes the one after.
using LayerCall = std::function<Var(Context&, const std::vector<Var>&, std::vector<Tensor>&, const SequenceOptions&)>;

struct LayerCase {
  std::string name;
  int64_t steps, batch, input, cells;
  std::vector<Shape> leaves;  // x first
  std::vector<Shape> state;
  LayerCall call;
  double scale = 0.5;  // of the weights
};

inline void PrintTo(const LayerCase& c, std::ostream* out) {
  *out << c.name;
}

inline LayerCase lstm_case(int64_t steps, int64_t batch, int64_t input, int64_t cells, int64_t projection) {
  const int64_t out = projection ? projection : cells;
  LayerCase c{"lstm", steps, batch, input, cells, {}, {{batch, out}, {batch, cells}}, {}};
  c.leaves = {{steps * batch, input}, {4 * cells, input}, {4 * cells, out}, {4 * cells}};
  if (projection) c.leaves.push_back({out, cells});
  c.call = [](Context& ctx, const std::vector<Var>& v, std::vector<Tensor>& state, const SequenceOptions& options) {
    return lstm::lstm_layer(ctx, v[0], {v[1], v[2], v[3], v.size() > 4 ? v[4] : Var()}, state, {0.7, options});
  };
  return c;
}

inline LayerCase mlstm_case(int64_t steps, int64_t batch, int64_t input, int64_t cells) {
  LayerCase c{"mlstm", steps, batch, input, cells, {}, {{batch, cells}, {batch, cells}}, {}};
  c.leaves = {{steps * batch, input}, {cells, input},     {cells, cells},
              {4 * cells, input},     {4 * cells, cells}, {4 * cells}};
  c.call = [](Context& ctx, const std::vector<Var>& v, std::vector<Tensor>& state, const SequenceOptions& options) {
    return mlstm::mlstm_layer(ctx, v[0], {v[1], v[2], v[3], v[4], v[5]}, state, {0.7, options});
  };
  return c;
}

inline LayerCase rhn_case(int64_t steps, int64_t batch, int64_t input, int64_t cells, int64_t depth, bool coupled) {
  const int64_t gates = (coupled ? 2 : 3) * cells;
  LayerCase c{coupled ? "rhn_coupled" : "rhn_free", steps, batch, input, cells, {}, {{batch, cells}}, {}};
  c.leaves = {{steps * batch, input}, {gates, input}};
  for (int64_t l = 0; l < depth; ++l) c.leaves.insert(c.leaves.end(), {{gates, cells}, {gates}});
  c.call = [coupled](Context& ctx, const std::vector<Var>& v, std::vector<Tensor>& state,
                     const SequenceOptions& options) {
    rhn::LayerWeights w{v[1], {}, {}};
    for (size_t i = 2; i < v.size(); i += 2) {
      w.w_s.push_back(v[i]);
      w.bias.push_back(v[i + 1]);
    }
    return rhn::rhn_layer(ctx, v[0], w, state, {coupled, -0.7, options});
  };
  return c;
}

// Leaves of a case in type `type`; x is larger than weights.
inline std::vector<Var> leaves_of(const LayerCase& c, DType type) {
  std::vector<Var> leaves;
  for (size_t i = 0; i < c.leaves.size(); ++i)
    leaves.emplace_back(f64_tensor(c.leaves[i], i + 1, i == 0 ? 1.0 : c.scale).to(type), true,
                        str(c.name, " leaf ", i));
  return leaves;
}

inline std::vector<Tensor> state_of(const LayerCase& c, DType type) {
  std::vector<Tensor> state;
  for (size_t i = 0; i < c.state.size(); ++i) state.push_back(f64_tensor(c.state[i], 50 + i, 0.8).to(type));
  return state;
}

namespace {

// A weighted sum, so that every output has a gradient of its own.
Var weighted(Context& ctx, const Var& y) {
  return sum(ctx, multiply(ctx, y, Var(f64_tensor(y.shape(), 99).to(y.value().dtype()))));
}

class RecurrentOp : public ::testing::TestWithParam<LayerCase> {
 protected:
};

TEST_P(RecurrentOp, GradientsMatchDifferences) {
  const LayerCase& c = GetParam();
  for (const int64_t segment : {int64_t{0}, int64_t{2}}) {
    gradcheck(
        [&](Context& ctx, const std::vector<Var>& v) {
          std::vector<Tensor> state = state_of(c, DType::f64);
          return weighted(ctx, c.call(ctx, v, state, {segment, false}));
        },
        leaves_of(c, DType::f64));
  }
}

// Outputs, state after and gradients of all leaves, as bits.
std::vector<std::vector<double>> differentiate(const LayerCase& c, DType compute, const SequenceOptions& options) {
  Context ctx;
  Tape tape;
  ctx.compute = compute;
  ctx.tape = &tape;
  const DType type = compute == DType::f64 ? DType::f64 : DType::f32;
  const std::vector<Var> leaves = leaves_of(c, type);
  std::vector<Tensor> state = state_of(c, type);
  const Var y = c.call(ctx, leaves, state, options);
  tape.backward(ctx, weighted(ctx, y));
  std::vector<std::vector<double>> out;
  const auto keep = [&](const Tensor& t) {
    const Tensor wide = t.to(DType::f64);
    out.emplace_back(wide.data<double>(), wide.data<double>() + wide.numel());
  };
  keep(y.value());
  for (const Tensor& s : state) keep(s);
  for (const Var& leaf : leaves) out.push_back(dense_gradient(leaf));
  return out;
}

// The state that a step hands on is not changed by the op, so that the caller may keep it.
TEST_P(RecurrentOp, StateCarriesOver) {
  const LayerCase& c = GetParam();
  Context ctx = f64_context();
  const std::vector<Var> leaves = leaves_of(c, DType::f64);
  const std::vector<Tensor> start = state_of(c, DType::f64);
  std::vector<Tensor> whole = start, parts = start;
  const Tensor y = c.call(ctx, leaves, whole, {}).value();
  std::vector<double> joined;
  for (int64_t t = 0; t < c.steps; ++t) {
    std::vector<Var> one = leaves;
    one[0] = Var(leaves[0].value().slice(t * c.batch, (t + 1) * c.batch));
    const Tensor step = c.call(ctx, one, parts, {}).value();
    joined.insert(joined.end(), step.data<double>(), step.data<double>() + step.numel());
  }
  EXPECT_EQ(joined, std::vector<double>(y.data<double>(), y.data<double>() + y.numel()));
  const std::vector<Tensor> again = state_of(c, DType::f64);
  for (size_t i = 0; i < start.size(); ++i) {
    for (int64_t j = 0; j < start[i].numel(); ++j) {
      ASSERT_EQ(whole[i].data<double>()[j], parts[i].data<double>()[j]);
      ASSERT_EQ(start[i].data<double>()[j], again[i].data<double>()[j]);
    }
  }
}

// A checkpointed layer makes the same calls again: not one bit differs, in any precision.
TEST_P(RecurrentOp, CheckpointedIsPlain) {
  for (const DType compute : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t segment : {1, 2, 3, 100}) {
      EXPECT_EQ(differentiate(GetParam(), compute, {segment, true}),
                differentiate(GetParam(), compute, {segment, false}))
          << name_of(compute) << ", segments of " << segment;
    }
  }
}

// Where a sequence is cut changes sums of gradients by rounding alone.
TEST_P(RecurrentOp, SegmentsAreTheWhole) {
  const auto whole = differentiate(GetParam(), DType::f64, {100, false});
  for (const int64_t segment : {1, 2, 3}) {
    const auto cut = differentiate(GetParam(), DType::f64, {segment, false});
    for (size_t i = 0; i < whole.size(); ++i) {
      for (size_t j = 0; j < whole[i].size(); ++j)
        ASSERT_NEAR(cut[i][j], whole[i][j], 1e-12 * std::max(1.0, std::abs(whole[i][j]))) << i << ' ' << j;
    }
  }
}

// f32, bf16 and f16 forward and gradients stay close to f64's, each within its own rounding.
void expect_precisions_near_f64(const LayerCase& c) {
  const auto want = differentiate(c, DType::f64, {});
  const bool lstm = c.name == "lstm";
  const std::pair<DType, double> limits[] = {
      {DType::f32, lstm ? 3e-6 : 1e-5}, {DType::bf16, lstm ? 3e-2 : 6e-2}, {DType::f16, lstm ? 4e-3 : 8e-3}};
  for (const auto& [compute, limit] : limits) {
    const auto got = differentiate(c, compute, {});
    for (size_t i = 0; i < want.size(); ++i) {
      double largest = 0, error = 0;
      for (size_t j = 0; j < want[i].size(); ++j) {
        largest = std::max(largest, std::abs(want[i][j]));
        error = std::max(error, std::abs(got[i][j] - want[i][j]));
      }
      EXPECT_LE(error, limit * std::max(largest, 0.1)) << name_of(compute) << ", result " << i;
    }
  }
}

TEST_P(RecurrentOp, EveryPrecisionFollowsF64) {
  expect_precisions_near_f64(GetParam());
}

// More cells than a vector of the CPU has numbers.
TEST_F(RecurrentOp, EveryPrecisionOfManyCellsFollowsF64) {
  LayerCase c = lstm_case(8, 4, 16, 24, 12);
  c.scale = 0.3;
  expect_precisions_near_f64(c);
}

// Frozen weights get no gradient, the others the same as before.
TEST_P(RecurrentOp, LeavesWithoutGradients) {
  const LayerCase& c = GetParam();
  std::vector<Var> leaves = leaves_of(c, DType::f64);
  for (size_t i = 0; i < leaves.size(); i += 2) leaves[i] = Var(leaves[i].value(), false, leaves[i].name());
  gradcheck(
      [&](Context& ctx, const std::vector<Var>& v) {
        std::vector<Tensor> state = state_of(c, DType::f64);
        return weighted(ctx, c.call(ctx, v, state, {}));
      },
      leaves, {.per_leaf = 10});
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, RecurrentOp,
    ::testing::Values(lstm_case(5, 3, 5, 6, 2), lstm_case(1, 1, 1, 1, 0), lstm_case(3, 1, 2, 4, 4),
                      lstm_case(4, 3, 5, 6, 2), lstm_case(5, 2, 1, 3, 0), lstm_case(2, 4, 3, 1, 1),
                      lstm_case(1, 3, 4, 5, 2), mlstm_case(5, 3, 4, 6), mlstm_case(1, 1, 1, 1), mlstm_case(4, 1, 3, 2),
                      mlstm_case(1, 4, 1, 3), rhn_case(5, 3, 4, 6, 3, true), rhn_case(5, 3, 4, 6, 3, false),
                      rhn_case(1, 1, 1, 1, 1, true), rhn_case(3, 1, 2, 1, 2, false), rhn_case(1, 4, 1, 3, 10, true)),
    [](const auto& p) {
      const LayerCase& c = p.param;
      return str(c.name, '_', c.steps, '_', c.batch, '_', c.input, '_', c.cells, '_', c.leaves.size());
    });

// With a transform bias far below zero a free gate carries the state, as a coupled one does.
TEST_F(RecurrentOp, TransformBiasOpensTheCarryGate) {
  for (const bool coupled : {true, false}) {
    const LayerCase c = rhn_case(3, 2, 2, 4, 2, coupled);
    Context ctx = f64_context();
    const std::vector<Var> v = leaves_of(c, DType::f64);
    std::vector<Tensor> state = state_of(c, DType::f64);
    const Tensor before = state[0].clone();
    rhn::rhn_layer(ctx, v[0], {v[1], {v[2], v[4]}, {v[3], v[5]}}, state, {coupled, -40, {}});
    for (int64_t i = 0; i < before.numel(); ++i)
      ASSERT_NEAR(state[0].data<double>()[i], before.data<double>()[i], 1e-6);
  }
}

// Training and validating take batches of different sizes; a weight is packed again only for another layout.
TEST_F(RecurrentOp, AWeightIsPackedOnceForABatchOfAnySize) {
  Context ctx;
  const auto leaf = [&](Shape shape, uint64_t seed) { return Var(f64_tensor(shape, seed, 0.3).to(DType::f32)); };
  const lstm::LayerWeights w{leaf({256, 16}, 1), leaf({256, 32}, 2), leaf({256}, 3), leaf({32, 64}, 4)};
  // Packed copies count in the memory of the weights' owner.
  const auto bytes = [&] {
    return w.w_hh.value().allocator()->stats().current[static_cast<size_t>(MemClass::parameters)];
  };
  const auto packed_bytes = [&](int64_t batch) {
    std::vector<Tensor> state{ctx.zeros({batch, 32}), ctx.zeros({batch, 64})};
    const Tensor x = f64_tensor({3 * batch, 16}, 5).to(DType::f32);
    lstm::lstm_layer(ctx, Var(x), w, state, {});
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

TEST_F(RecurrentOp, ErrorsNameEveryShape) {
  Context ctx;
  const auto v = [&](Shape shape) { return Var(ctx.zeros(shape)); };
  std::vector<Tensor> projected{ctx.zeros({2, 3}), ctx.zeros({2, 4})};
  const lstm::LayerWeights w{v({16, 5}), v({16, 3}), v({16}), v({3, 4})};
  EXPECT_EQ(user_error([&] {
              lstm::lstm_layer(ctx, v({4, 6}), w, projected, {});
            }),
            "[lstm] x (4, 6), w_ih (16, 5), w_hh (16, 3), bias (16), w_hr (3, 4), h (2, 3), c (2, 4): x and w_ih "
            "differ in the input size");
  EXPECT_THROW(lstm::lstm_layer(ctx, v({3, 5}), w, projected, {}), UserError);
  std::vector<Tensor> state{ctx.zeros({2, 4}), ctx.zeros({2, 4})};
  EXPECT_EQ(user_error([&] {
              mlstm::mlstm_layer(ctx, v({6, 3}), {v({4, 5}), v({4, 4}), v({16, 3}), v({16, 4}), v({16})}, state, {});
            }),
            "[mlstm] x (6, 3), w_mx (4, 5), w_mh (4, 4), w_x (16, 3), w_m (16, 4), bias (16), h (2, 4), c (2, 4): w_mx "
            "must be (H, E) = (4, 3)");
  EXPECT_NE(user_error([&] {
              mlstm::mlstm_layer(ctx, v({5, 3}), {v({4, 3}), v({4, 4}), v({16, 3}), v({16, 4}), v({16})}, state, {});
            }).find("x (5, 3) and state (2, 4): x must have T*B rows"),
            std::string::npos);
  std::vector<Tensor> s{ctx.zeros({2, 4})};
  EXPECT_EQ(user_error([&] {
              rhn::rhn_layer(ctx, v({6, 3}), {v({12, 3}), {v({8, 4})}, {v({8})}}, s, {});
            }),
            "[rhn] x (6, 3), w_x (12, 3), 1 of w_s, 1 of bias, s (2, 4): w_x must be (G H, E) = (8, 3)");
  EXPECT_EQ(user_error([&] {
              rhn::rhn_layer(ctx, v({6, 3}), {v({8, 3}), {v({12, 4})}, {v({8})}}, s, {});
            }),
            "[rhn] x (6, 3), w_x (8, 3), 1 of w_s, 1 of bias, s (2, 4): w_s 0 is (12, 4) and bias (8), not (8, 4) and "
            "(8)");
  EXPECT_NE(user_error([&] {
              rhn::rhn_layer(ctx, v({6, 3}), {v({8, 3}), {}, {}}, s, {});
            }).find("at least one highway"),
            std::string::npos);
}

}  // namespace
}  // namespace lmx::testing
