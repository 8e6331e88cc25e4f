#include "train/logistic.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx::train {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

LinearModel from(const LinearModel& start, int64_t columns) {
  LinearModel m = start;
  m.weights.resize(static_cast<size_t>(columns));
  m.iterations = 0;
  m.converged = false;
  return m;
}

}  // namespace

LogisticProblem::LogisticProblem(const FeatureMatrix& f)
    : rows_(f.rows), columns_(f.columns), by_column_(f.values.size()), labels_(f.labels) {
  LMX_CHECK(rows_ > 0 && static_cast<int64_t>(labels_.size()) == rows_, rows_, " rows, ", labels_.size(), " labels");
  parallel_for(columns_, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = begin; j < end; ++j)
        by_column_[static_cast<size_t>(j * rows_ + i)] = f.values[static_cast<size_t>(i * columns_ + j)];
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

// Of L-BFGS (Nocedal 1980): the latest steps and changes of the gradient, and the direction that they give.
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

// The L2 objective of (w, b), b behind w.
struct Ridge {
  const LogisticProblem& problem;
  double c;
  double operator()(const std::vector<double>& x, std::vector<double>& gradient) const {
    const std::span<const double> w(x.data(), x.size() - 1);
    std::vector<double> z, r;
    problem.scores(w, x.back(), z);
    const double loss = problem.loss(z, &r);
    problem.gradient(r, gradient);
    for (size_t j = 0; j < w.size(); ++j) gradient[j] = c * gradient[j] + w[j];
    gradient.push_back(c * std::accumulate(r.begin(), r.end(), 0.0));
    return c * loss + dot(w, w) / 2;
  }
};

}  // namespace

LinearModel LogisticProblem::fit_l2(double c, const LinearModel& start) const {
  LinearModel model = from(start, columns_);
  const Ridge objective{*this, c};
  std::vector<double> x = model.weights, gradient, next_gradient;
  x.push_back(model.bias);
  double value = objective(x, gradient);
  // What the gradient is measured by: that at zero, where a fit without a start begins.
  std::vector<double> at_zero;
  static_cast<void>(objective(std::vector<double>(x.size()), at_zero));
  const double goal = 1e-7 * std::sqrt(dot(at_zero, at_zero)) + 1e-10;
  History history;
  int flat = 0;  // steps in a row that hardly lowered it
  for (; model.iterations < 2000 && !model.converged; ++model.iterations) {
    std::vector<double> direction = history.direction(gradient);
    double slope = dot(direction, gradient);
    double step = 1, next_value = value;
    std::vector<double> next;
    bool lower = false;
    for (int halvings = 0; halvings < 40 && !lower; ++halvings, step *= 0.5) {
      next = x;
      for (size_t i = 0; i < x.size(); ++i) next[i] += step * direction[i];
      next_value = objective(next, next_gradient);
      lower = next_value <= value + 1e-4 * step * slope;
    }
    if (!lower) break;  // rounding: no lower value along the way down
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
  return model;
}

namespace {

// Proximal Newton (Yuan, Ho and Lin 2012): the loss as its second-order expansion, minimised by coordinate descent over
// the weights that are not 0 or want not to be, then a line search.
class Lasso {
 public:
  Lasso(const LogisticProblem& problem, double c, LinearModel& model) : p_(problem), c_(c), m_(model) {
    p_.scores(m_.weights, m_.bias, z_);
  }

  void run() {
    for (; m_.iterations < 100; ++m_.iterations) {
      m_.objective = expand();
      const double violation = choose_active();
      m_.converged =
          violation <= kTolerance && std::abs(bias_gradient_) <= kTolerance * std::max(1.0, weight_of_data());
      if (m_.converged) return;
      descend(0.1 * std::max(violation, kTolerance));
      // Where the step promises next to nothing, weights of like columns may still trade places: that says nothing.
      m_.converged = promised() >= -kDecrease * m_.objective;
      if (m_.converged || !search()) return;  // no lower along the way down: rounding
    }
  }

 private:
  static constexpr double kTolerance = 1e-6;  // of a gradient beside the penalty's 1
  static constexpr double kDecrease = 1e-7;   // of the objective in a step

  double weight_of_data() const { return c_ * static_cast<double>(p_.rows()); }
  static double shrunk(double x, double by) { return x > by ? x - by : x < -by ? x + by : 0; }
  double norm(std::span<const double> w) const {
    double sum = 0;
    for (const double v : w) sum += std::abs(v);
    return sum;
  }

  // Gradients and curvatures at the present scores; the objective.
  double expand() {
    const double loss = p_.loss(z_, &r_);
    curvature_.resize(r_.size());
    for (size_t i = 0; i < r_.size(); ++i) {
      const double p = 1 / (1 + std::exp(-z_[i]));
      curvature_[i] = c_ * std::max(p * (1 - p), 1e-12);
      r_[i] *= c_;
    }
    p_.gradient(r_, gradient_);
    bias_gradient_ = std::accumulate(r_.begin(), r_.end(), 0.0);
    return c_ * loss + norm(m_.weights);
  }

  // The most that a weight's subgradient is away from 0.
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

  // Newton's step of weight j to the minimum along it.
  double step_of(size_t j, double gradient, double second) const {
    const double now = m_.weights[j] + change_[j];
    return shrunk(now - gradient / second, 1 / second) - now;
  }

  // With the products of the active columns made once, a round costs active^2 instead of active x rows. The bias is a
  // column of ones behind them.
  void descend_by_products(double goal) {
    const size_t n = r_.size(), a = active_.size();
    std::vector<double> products((a + 1) * (a + 1)), slopes(a + 1);
    parallel_for(static_cast<int64_t>(a + 1), 1, [&](int64_t begin, int64_t end) {
      std::vector<double> weighted(n);
      for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
        for (size_t i = 0; i < n; ++i)
          weighted[i] = k < a ? curvature_[i] * static_cast<double>(p_.column(active_[k])[i]) : curvature_[i];
        for (size_t l = 0; l < a; ++l) {
          const float* x = p_.column(active_[l]);
          double sum = 0;
          for (size_t i = 0; i < n; ++i) sum += weighted[i] * static_cast<double>(x[i]);
          products[k * (a + 1) + l] = sum + (k == l ? 1e-12 : 0);
        }
        products[k * (a + 1) + a] = std::accumulate(weighted.begin(), weighted.end(), 0.0);
      }
    });
    for (size_t k = 0; k < a; ++k) slopes[k] = gradient_[static_cast<size_t>(active_[k])];
    slopes[a] = bias_gradient_;
    for (int round = 0; round < 1000; ++round) {
      double most = 0;
      for (size_t k = 0; k <= a; ++k) {
        const double second = products[k * (a + 1) + k];
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
      const double g = bias_gradient_ + dot(curvature_, moved_);
      const double delta = -g / bias_second;
      bias_change_ += delta;
      for (double& v : moved_) v += delta;
      most = std::max(most, std::abs(g) / std::max(1.0, weight_of_data()));
      if (most <= goal) return;
    }
  }

  // By how much the objective would fall along the whole step, were it straight.
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
  LinearModel model = from(start, columns_);
  Lasso(*this, c, model).run();
  return model;
}

}  // namespace lmx::train
