// What the tests of the sequence ops share: a layer of each cell as one call, with leaves of given sizes.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "lmx/error.h"
#include "lmx/lstm_cell.h"
#include "lstm_op.h"
#include "mlstm_kernels.h"
#include "mlstm_op.h"
#include "ops/gradcheck.h"
#include "rhn_kernels.h"
#include "rhn_op.h"

namespace lmx::testing {

// y of leaves (x first), from a state that becomes the one after.
using LayerCall = std::function<Var(Context&, const std::vector<Var>&, std::vector<Tensor>&, const SequenceOptions&)>;

struct LayerCase {
  std::string name;
  int64_t steps, batch, input, cells;
  std::vector<Shape> leaves;  // x first
  std::vector<Shape> state;
  LayerCall call;
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
    leaves.emplace_back(f64_tensor(c.leaves[i], i + 1, i == 0 ? 1.0 : 0.5).to(type), true, str(c.name, " leaf ", i));
  return leaves;
}

inline std::vector<Tensor> state_of(const LayerCase& c, DType type) {
  std::vector<Tensor> state;
  for (size_t i = 0; i < c.state.size(); ++i) state.push_back(f64_tensor(c.state[i], 50 + i, 0.8).to(type));
  return state;
}

}  // namespace lmx::testing
