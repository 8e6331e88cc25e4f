#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "app/probe/transfer.h"

namespace lmx::train {
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

}  // namespace lmx::train
