// Gradient checks in f64, for the tests of ops and models: compares the gradient that backward() computes for each leaf
// with central differences of the loss. With GoogleTest:
//
//   EXPECT_EQ(gradcheck_problem([&](Context& ctx, const std::vector<Var>& v) { return sum(ctx, my_op(ctx, v[0], v[1]));
//   },
//                               {f64_leaf({2, 3}, 1, "x"), f64_leaf({4, 3}, 2, "w")}), "");
//
// The function must be pure: the same leaves give the same loss (dropout with a fixed key does).
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/error.h"
#include "lmx/ops.h"
#include "lmx/random.h"

namespace lmx::testing {

using ScalarFunction = std::function<Var(Context&, const std::vector<Var>&)>;

inline Context f64_context(Tape* tape = nullptr) {
  Context ctx;
  ctx.compute = DType::f64;
  ctx.tape = tape;
  return ctx;
}

// Normal values of standard deviation `scale`.
inline Tensor f64_tensor(Shape shape, uint64_t seed, double scale = 1.0) {
  Tensor t = Tensor::empty(Allocator::cpu(), shape, DType::f64);
  const RandomKey key(seed);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = scale * key.normal(static_cast<uint64_t>(i));
  return t;
}

inline Var f64_leaf(Shape shape, uint64_t seed, std::string name, double scale = 1.0) {
  return Var(f64_tensor(shape, seed, scale), true, std::move(name));
}

inline Tensor ids_tensor(const std::vector<int32_t>& ids) {
  return Tensor::from<int32_t>(Allocator::cpu(), {static_cast<int64_t>(ids.size())}, ids);
}

// The leaf's gradient with row-sparse pieces added up; zeros if it has none.
inline std::vector<double> dense_gradient(const Var& leaf) {
  const auto values = [](const Tensor& t) {
    const Context ctx;
    const auto copied = [](const auto& reading) {
      return std::vector<double>(reading.get().begin(), reading.get().end());
    };
    return t.dtype() == DType::f64 ? copied(ctx.read<double>(t)) : copied(ctx.read<float>(t));
  };
  const Gradient& grad = leaf.grad();
  std::vector<double> g =
      grad.dense.defined() ? values(grad.dense) : std::vector<double>(static_cast<size_t>(leaf.value().numel()));
  for (const RowSparse& piece : grad.pieces) {
    const int64_t width = leaf.value().numel() / leaf.value().dim(0);
    const std::vector<double> rows = values(piece.rows);
    for (size_t r = 0; r < piece.indices.size(); ++r) {
      for (int64_t j = 0; j < width; ++j) {
        g[static_cast<size_t>(piece.indices[r] * width + j)] +=
            rows[r * static_cast<size_t>(width) + static_cast<size_t>(j)];
      }
    }
  }
  return g;
}

struct GradcheckOptions {
  double tolerance = 1e-6;  // limit of |analytic - numeric| / max(1, |analytic|, |numeric|)
  double step = 1e-5;
  int64_t per_leaf = 200;           // number of elements checked in each leaf, evenly spread
  Context context = f64_context();  // where the function computes; leaves are copied to its device
};

inline double loss_value(const ScalarFunction& f, const std::vector<Var>& leaves, const GradcheckOptions& options) {
  Context ctx = options.context;
  return ctx.read<double>(f(ctx, leaves).value()).value();
}

inline void run_backward(const ScalarFunction& f, const std::vector<Var>& leaves, double seed,
                         const GradcheckOptions& options) {
  Tape tape;
  Context ctx = options.context;
  ctx.tape = &tape;
  const Var loss = f(ctx, leaves);
  tape.backward(ctx, loss, seed);
}

// The central difference of the loss with respect to element i of the leaf.
inline double difference_quotient(const ScalarFunction& f, const std::vector<Var>& leaves, Var& leaf, int64_t i,
                                  const GradcheckOptions& options) {
  const Context& ctx = options.context;
  Tensor element = leaf.value().reshape({-1}).slice(i, i + 1);
  const Tensor kept = element.clone();
  const double x = ctx.read<double>(kept).value();
  double side[2];
  for (const int s : {0, 1}) {
    const std::vector<double> moved{x + (s == 0 ? options.step : -options.step)};
    element.copy_from(ctx.upload(Tensor::from<double>(ctx.host, {1}, moved)));
    leaf.changed();
    side[s] = loss_value(f, leaves, options);
  }
  element.copy_from(kept);
  leaf.changed();
  return (side[0] - side[1]) / (2 * options.step);
}

// Returns "" if the gradient of every checked element agrees with the difference quotient, else a text about the first
// that differs.
inline std::string leaf_problem(const ScalarFunction& f, const std::vector<Var>& leaves, Var& leaf,
                                const std::vector<double>& analytic, const GradcheckOptions& options) {
  if (!leaf.requires_grad()) return leaf.grad().empty() ? "" : leaf.name() + " needs no gradient but got one";
  const int64_t n = leaf.value().numel();
  for (int64_t i = 0; i < n; i += std::max<int64_t>(1, n / options.per_leaf)) {
    const double numeric = difference_quotient(f, leaves, leaf, i, options), a = analytic[static_cast<size_t>(i)];
    const double scale = std::max({1.0, std::abs(a), std::abs(numeric)});
    if (!std::isfinite(a) || !(std::abs(a - numeric) <= options.tolerance * scale))
      return str(leaf.name(), '[', i, "] of ", leaf.shape(), ": analytic ", a, ", numeric ", numeric);
  }
  return "";
}

// Returns "" if every leaf that requires a gradient passes, gradients are linear in the seed of backward(), and a
// second backward() adds to the first. Otherwise returns the first problem.
inline std::string gradcheck_problem(const ScalarFunction& f, std::vector<Var> leaves, GradcheckOptions options = {}) {
  for (Var& v : leaves) {
    if (v.value().device() != options.context.device)
      v = Var(options.context.upload(v.value()), v.requires_grad(), v.name());
    v.grad().clear();
  }
  run_backward(f, leaves, 1.0, options);
  std::vector<std::vector<double>> analytic;
  for (const Var& v : leaves) analytic.push_back(dense_gradient(v));
  for (size_t l = 0; l < leaves.size(); ++l) {
    const std::string problem = leaf_problem(f, leaves, leaves[l], analytic[l], options);
    if (!problem.empty()) return problem;
  }
  run_backward(f, leaves, -0.5, options);
  for (size_t l = 0; l < leaves.size(); ++l) {
    const std::vector<double> both = dense_gradient(leaves[l]);
    for (size_t i = 0; i < both.size(); ++i) {
      const double expected = 0.5 * analytic[l][i];
      if (!(std::abs(both[i] - expected) <= 1e-12 * std::max(1.0, std::abs(expected))))
        return str(leaves[l].name(), '[', i, "]: gradients of seeds 1 and -0.5 must add up to half the first, ",
                   expected, ", but give ", both[i]);
    }
    leaves[l].grad().clear();
  }
  return "";
}

}  // namespace lmx::testing
