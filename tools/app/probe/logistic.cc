#include "app/probe/transfer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <utility>

#include "lmx/error.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"

namespace lmx::train {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

}  // namespace

LinearModel LogisticProblem::started(const LinearModel& start) const {
  LinearModel m = start;
  m.weights.resize(static_cast<size_t>(columns_));
  m.bias += dot(m.weights, means_);
  m.iterations = 0;
  m.converged = false;
  return m;
}

LinearModel LogisticProblem::finished(LinearModel model) const {
  model.bias -= dot(model.weights, means_);
  return model;
}

LogisticProblem::LogisticProblem(const FeatureMatrix& f)
    : rows_(f.rows),
      columns_(f.columns),
      by_column_(f.values.size()),
      means_(static_cast<size_t>(f.columns)),
      labels_(f.labels) {
  LMX_CHECK(rows_ > 0 && static_cast<int64_t>(labels_.size()) == rows_, rows_, " rows, ", labels_.size(), " labels");
  parallel_for(columns_, 64, [&](int64_t begin, int64_t end) {
    const auto x = [&](int64_t i, int64_t j) {
      return static_cast<double>(f.values[static_cast<size_t>(i * columns_ + j)]);
    };
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = begin; j < end; ++j) means_[static_cast<size_t>(j)] += x(i, j) / static_cast<double>(rows_);
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = begin; j < end; ++j)
        by_column_[static_cast<size_t>(j * rows_ + i)] = static_cast<float>(x(i, j) - means_[static_cast<size_t>(j)]);
  });
}

void LogisticProblem::scores(std::span<const double> w, double b, std::vector<double>& z) const {
  z.assign(static_cast<size_t>(rows_), b);
  parallel_for(rows_, 256, [&](int64_t begin, int64_t end) {
    for (int64_t j = 0; j < columns_; ++j) {
      const double weight = w[static_cast<size_t>(j)];
      if (weight == 0) continue;
      const float* x = column(j);
      for (int64_t i = begin; i < end; ++i) z[static_cast<size_t>(i)] += weight * static_cast<double>(x[i]);
    }
  });
}

void LogisticProblem::gradient(std::span<const double> r, std::vector<double>& g) const {
  g.resize(static_cast<size_t>(columns_));
  parallel_for(columns_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const float* x = column(j);
      double sum = 0;
      for (int64_t i = 0; i < rows_; ++i) sum += static_cast<double>(x[i]) * r[static_cast<size_t>(i)];
      g[static_cast<size_t>(j)] = sum;
    }
  });
}

std::vector<double> LogisticProblem::weighted_products(std::span<const int64_t> columns,
                                                       std::span<const double> h) const {
  const auto n = static_cast<int64_t>(columns.size()) + 1;
  std::vector<float> root(h.size());
  std::transform(h.begin(), h.end(), root.begin(), [](double v) { return static_cast<float>(std::sqrt(v)); });
  Context ctx;
  Tensor scaled = ctx.empty({n, rows_}), products = ctx.empty({n, n});
  parallel_for(n - 1, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      std::transform(root.begin(), root.end(), column(columns[static_cast<size_t>(k)]),
                     scaled.data<float>() + k * rows_, std::multiplies<>());
  });
  std::copy(root.begin(), root.end(), scaled.data<float>() + (n - 1) * rows_);
  gemm(ctx, scaled, false, scaled, true, products);
  return {products.data<float>(), products.data<float>() + n * n};
}

std::vector<double> LogisticProblem::curvature(std::span<const double> z) {
  std::vector<double> h(z.begin(), z.end());
  for (double& v : h) {
    const double p = 1 / (1 + std::exp(-v));
    v = std::max(p * (1 - p), 1e-12);
  }
  return h;
}

double LogisticProblem::loss(std::span<const double> z, std::vector<double>* r) const {
  double sum = 0;
  if (r) r->resize(z.size());
  for (size_t i = 0; i < z.size(); ++i) {
    const double margin = labels_[i] ? z[i] : -z[i];
    sum += softplus(-margin);
    if (r) (*r)[i] = 1 / (1 + std::exp(-z[i])) - labels_[i];
  }
  return sum;
}

namespace {

// The history of L-BFGS (Nocedal 1980): the latest steps and changes of the gradient, and the direction computed from
// them.
class History {
 public:
  void add(std::vector<double> s, std::vector<double> y) {
    if (dot(s, y) <= 1e-12 * dot(y, y)) return;
    pairs_.push_back({std::move(s), std::move(y)});
    if (pairs_.size() > 12) pairs_.pop_front();
  }
  std::vector<double> direction(const std::vector<double>& gradient) const {
    std::vector<double> q = gradient, alpha(pairs_.size());
    for (size_t k = pairs_.size(); k-- > 0;) {
      alpha[k] = dot(pairs_[k].s, q) / dot(pairs_[k].s, pairs_[k].y);
      for (size_t i = 0; i < q.size(); ++i) q[i] -= alpha[k] * pairs_[k].y[i];
    }
    const double scale = pairs_.empty() ? 1 / std::max(1.0, std::sqrt(dot(gradient, gradient)))
                                        : dot(pairs_.back().s, pairs_.back().y) / dot(pairs_.back().y, pairs_.back().y);
    for (double& v : q) v *= scale;
    for (size_t k = 0; k < pairs_.size(); ++k) {
      const double beta = dot(pairs_[k].y, q) / dot(pairs_[k].s, pairs_[k].y);
      for (size_t i = 0; i < q.size(); ++i) q[i] += (alpha[k] - beta) * pairs_[k].s[i];
    }
    for (double& v : q) v = -v;
    return q;
  }

 private:
  struct Pair {
    std::vector<double> s, y;
  };
  std::deque<Pair> pairs_;
};

// The L2 objective of (w, b), with b after w.
struct Ridge {
  const LogisticProblem& problem;
  double c;
  // `z` receives the scores at x.
  double operator()(const std::vector<double>& x, std::vector<double>& gradient, std::vector<double>& z) const {
    const std::span<const double> w(x.data(), x.size() - 1);
    std::vector<double> r;
    problem.scores(w, x.back(), z);
    const double loss = problem.loss(z, &r);
    problem.gradient(r, gradient);
    for (size_t j = 0; j < w.size(); ++j) gradient[j] = c * gradient[j] + w[j];
    gradient.push_back(c * std::accumulate(r.begin(), r.end(), 0.0));
    return c * loss + dot(w, w) / 2;
  }
};

// Solves A x = b for a symmetric positive definite A (n, n) by Cholesky decomposition; b becomes x. Returns false if A
// is not positive definite within rounding.
bool solve(std::vector<double> a, std::vector<double>& b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const std::span<const double> row(a.data() + i * n, j), other(a.data() + j * n, j);
      const double v = a[i * n + j] - dot(row, other);
      if (i == j && v <= 0) return false;
      a[i * n + j] = i == j ? std::sqrt(v) : v / a[j * n + j];
    }
    b[i] = (b[i] - dot({a.data() + i * n, i}, {b.data(), i})) / a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    b[i] /= a[i * n + i];
    for (size_t j = 0; j < i; ++j) b[j] -= a[i * n + j] * b[i];
  }
  return true;
}

// Returns Newton's direction at the scores z. The curvature is summed in float, so a step has this precision. The
// gradient, which determines convergence, is not affected.
std::vector<double> newton_direction(const LogisticProblem& p, double c, const std::vector<double>& z,
                                     const std::vector<double>& gradient) {
  const size_t n = gradient.size();
  std::vector<int64_t> all(n - 1);
  std::iota(all.begin(), all.end(), 0);
  std::vector<double> hessian = p.weighted_products(all, LogisticProblem::curvature(z));
  double most = 0;
  for (size_t i = 0; i < n; ++i) most = std::max(most, hessian[i * n + i] *= c);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) hessian[i * n + j] *= c;
    if (i + 1 < n) hessian[i * n + i] += 1;
  }
  std::vector<double> direction;
  for (double damping = 0; direction.empty(); damping = std::max(1e-6 * most, 10 * damping)) {
    for (size_t i = 0; i < n; ++i) hessian[i * n + i] += damping;
    std::vector<double> b(n);
    std::transform(gradient.begin(), gradient.end(), b.begin(), std::negate<>());
    if (solve(hessian, b)) direction = std::move(b);
  }
  return direction;
}

// Up to this number of columns, computing and factorising the curvature costs less than the L-BFGS steps that it saves.
constexpr int64_t kNewtonColumns = 1024;

}  // namespace

LinearModel LogisticProblem::fit_l2(double c, const LinearModel& start) const {
  LinearModel model = started(start);
  const Ridge objective{*this, c};
  std::vector<double> x = model.weights, gradient, next_gradient, z;
  x.push_back(model.bias);
  double value = objective(x, gradient, z);
  // The gradient is compared with the gradient at zero, where a fit without a start begins.
  std::vector<double> at_zero, no_scores;
  static_cast<void>(objective(std::vector<double>(x.size()), at_zero, no_scores));
  const double goal = 1e-7 * std::sqrt(dot(at_zero, at_zero)) + 1e-10;
  History history;
  int flat = 0;  // consecutive steps that hardly lowered the objective
  for (; model.iterations < 2000 && !model.converged; ++model.iterations) {
    const std::vector<double> direction =
        columns_ <= kNewtonColumns ? newton_direction(*this, c, z, gradient) : history.direction(gradient);
    const double slope = dot(direction, gradient);
    double step = 1, next_value = value;
    std::vector<double> next;
    bool lower = false;
    for (int halvings = 0; halvings < 40 && !lower; ++halvings, step *= 0.5) {
      next = x;
      for (size_t i = 0; i < x.size(); ++i) next[i] += step * direction[i];
      next_value = objective(next, next_gradient, z);
      lower = next_value <= value + 1e-4 * step * slope;
    }
    if (!lower) break;  // no smaller value along the descent direction, because of rounding
    std::vector<double> s(x.size()), y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      s[i] = next[i] - x[i];
      y[i] = next_gradient[i] - gradient[i];
    }
    history.add(std::move(s), std::move(y));
    x = std::move(next);
    gradient = next_gradient;
    flat = value - next_value <= 1e-10 * value ? flat + 1 : 0;
    value = next_value;
    model.converged = std::sqrt(dot(gradient, gradient)) <= goal || flat == 5;
  }
  model.bias = x.back();
  x.pop_back();
  model.weights = std::move(x);
  model.objective = value;
  return finished(std::move(model));
}

}  // namespace lmx::train
