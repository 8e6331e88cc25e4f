#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <utility>

#include "app/probe/transfer.h"
#include "lmx/error.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"

namespace lmx::app {
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

namespace {

// Proximal Newton (Yuan, Ho and Lin 2012): minimises the second-order expansion of the loss by coordinate descent over
// the active weights, then makes a line search. A weight is active if it is not 0 or its gradient moves it away from 0.
class Lasso {
 public:
  Lasso(const LogisticProblem& problem, double c, LinearModel& model) : p_(problem), c_(c), m_(model) {
    p_.scores(m_.weights, m_.bias, z_);
  }

  void run() {
    for (; m_.iterations < 1000; ++m_.iterations) {
      m_.objective = expand();
      const double violation = choose_active();
      m_.converged =
          violation <= kTolerance && std::abs(bias_gradient_) <= kTolerance * std::max(1.0, weight_of_data());
      if (m_.converged) return;
      descend(0.1 * std::max(violation, kTolerance));
      // If the step would hardly lower the objective, this counts as convergence, although the weights of similar
      // columns may still change.
      m_.converged = promised() >= -kDecrease * m_.objective;
      if (m_.converged || !search()) return;  // no smaller value along the step, because of rounding
    }
  }

 private:
  static constexpr double kTolerance = 1e-6;  // of a gradient, compared with the penalty's 1
  static constexpr double kDecrease = 1e-7;   // relative decrease of the objective in a step

  double weight_of_data() const { return c_ * static_cast<double>(p_.rows()); }
  static double shrunk(double x, double by) { return x > by ? x - by : x < -by ? x + by : 0; }
  double norm(std::span<const double> w) const {
    double sum = 0;
    for (const double v : w) sum += std::abs(v);
    return sum;
  }

  // Computes gradients and curvatures at the current scores. Returns the objective.
  double expand() {
    const double loss = p_.loss(z_, &r_);
    curvature_ = LogisticProblem::curvature(z_);
    for (double& v : curvature_) v *= c_;
    for (double& v : r_) v *= c_;
    p_.gradient(r_, gradient_);
    bias_gradient_ = std::accumulate(r_.begin(), r_.end(), 0.0);
    return c_ * loss + norm(m_.weights);
  }

  // Chooses the active weights. Returns the largest distance of a weight's subgradient from 0.
  double choose_active() {
    active_.clear();
    double most = 0;
    for (size_t j = 0; j < gradient_.size(); ++j) {
      const double w = m_.weights[j], g = gradient_[j];
      if (w != 0 || std::abs(g) > 1) active_.push_back(static_cast<int64_t>(j));
      most = std::max(most, w > 0 ? std::abs(g + 1) : w < 0 ? std::abs(g - 1) : std::abs(g) - 1);
    }
    return most;
  }

  void descend(double goal) {
    change_.assign(m_.weights.size(), 0);
    bias_change_ = 0;
    moved_.assign(r_.size(), 0);
    if (active_.size() * 4 <= r_.size())
      descend_by_products(goal);
    else
      descend_by_rows(goal);
  }

  // Returns the step of weight j to the minimum along its axis.
  double step_of(size_t j, double gradient, double second) const {
    const double now = m_.weights[j] + change_[j];
    return shrunk(now - gradient / second, 1 / second) - now;
  }

  // Computes the products of the active columns once, so that a round costs active^2 instead of active x rows. The bias
  // is a column of ones after them.
  void descend_by_products(double goal) {
    const size_t a = active_.size();
    const std::vector<double> products = p_.weighted_products(active_, curvature_);
    std::vector<double> slopes(a + 1);
    for (size_t k = 0; k < a; ++k) slopes[k] = gradient_[static_cast<size_t>(active_[k])];
    slopes[a] = bias_gradient_;
    for (int round = 0; round < 1000; ++round) {
      double most = 0;
      for (size_t k = 0; k <= a; ++k) {
        const double second = products[k * (a + 1) + k] + 1e-12;
        const double delta = k < a ? step_of(static_cast<size_t>(active_[k]), slopes[k], second) : -slopes[k] / second;
        if (delta == 0) continue;
        (k < a ? change_[static_cast<size_t>(active_[k])] : bias_change_) += delta;
        most = std::max(most, std::abs(delta) * second / (k < a ? 1 : std::max(1.0, weight_of_data())));
        for (size_t l = 0; l <= a; ++l) slopes[l] += delta * products[k * (a + 1) + l];
      }
      if (most <= goal) break;
    }
    for (const int64_t j : active_) move_along(p_.column(j), change_[static_cast<size_t>(j)]);
    for (double& v : moved_) v += bias_change_;
  }

  void move_along(const float* x, double by) {
    for (size_t i = 0; i < moved_.size(); ++i) moved_[i] += by * static_cast<double>(x[i]);
  }

  void descend_by_rows(double goal) {
    const size_t n = r_.size();
    std::vector<double> second;
    for (const int64_t j : active_) {
      const float* x = p_.column(j);
      double sum = 1e-12;
      for (size_t i = 0; i < n; ++i) sum += curvature_[i] * static_cast<double>(x[i]) * static_cast<double>(x[i]);
      second.push_back(sum);
    }
    const double bias_second = std::accumulate(curvature_.begin(), curvature_.end(), 0.0);
    for (int round = 0; round < 100; ++round) {
      double most = 0;
      for (size_t a = 0; a < active_.size(); ++a) {
        const auto j = static_cast<size_t>(active_[a]);
        const float* x = p_.column(active_[a]);
        double g = gradient_[j];
        for (size_t i = 0; i < n; ++i) g += curvature_[i] * moved_[i] * static_cast<double>(x[i]);
        const double delta = step_of(j, g, second[a]);
        if (delta == 0) continue;
        change_[j] += delta;
        most = std::max(most, std::abs(delta) * second[a]);
        move_along(x, delta);
      }
      const double g = bias_gradient_ + std::inner_product(curvature_.begin(), curvature_.end(), moved_.begin(), 0.0);
      const double delta = -g / bias_second;
      bias_change_ += delta;
      for (double& v : moved_) v += delta;
      most = std::max(most, std::abs(g) / std::max(1.0, weight_of_data()));
      if (most <= goal) return;
    }
  }

  // Returns the change of the objective along the whole step, with the loss linearised.
  double promised() const {
    double slope = bias_gradient_ * bias_change_;
    for (size_t j = 0; j < change_.size(); ++j)
      slope += gradient_[j] * change_[j] + std::abs(m_.weights[j] + change_[j]) - std::abs(m_.weights[j]);
    return slope;
  }

  bool search() {
    const double slope = promised();
    std::vector<double> next = m_.weights;
    for (double step = 1; step > 1e-10; step *= 0.5) {
      std::vector<double> z = z_;
      for (size_t i = 0; i < z.size(); ++i) z[i] += step * moved_[i];
      for (size_t j = 0; j < next.size(); ++j) next[j] = m_.weights[j] + step * change_[j];
      if (c_ * p_.loss(z, nullptr) + norm(next) > m_.objective + 0.01 * step * slope) continue;
      m_.weights = next;
      m_.bias += step * bias_change_;
      z_ = std::move(z);
      return true;
    }
    return false;
  }

  const LogisticProblem& p_;
  double c_;
  LinearModel& m_;
  std::vector<double> z_, r_, curvature_, gradient_, change_, moved_;
  std::vector<int64_t> active_;
  double bias_gradient_ = 0, bias_change_ = 0;
};

}  // namespace

LinearModel LogisticProblem::fit_l1(double c, const LinearModel& start) const {
  LinearModel model = started(start);
  Lasso(*this, c, model).run();
  return finished(std::move(model));
}

}  // namespace lmx::app
