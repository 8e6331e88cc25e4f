// Solvers of logistic regression over a dense matrix; transfer.h states the objective.
#pragma once

#include <span>
#include <vector>

#include "app/probe/transfer.h"

namespace lmx::train {

// The data of a fit, in the layout that the solvers read: columns less their means, which the bias makes good. (A
// column that hardly strays from a large mean and the bias are nearly collinear, and solvers take very many steps, or
// end beside the minimum.) These are the x of all that stands here. REQUIRES: as many labels as rows, rows > 0.
class LogisticProblem {
 public:
  explicit LogisticProblem(const FeatureMatrix& features);
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const float* column(int64_t j) const { return by_column_.data() + j * rows_; }
  // z = X w + b
  void scores(std::span<const double> w, double b, std::vector<double>& z) const;
  // g_j = sum_i x_ij r_i
  void gradient(std::span<const double> r, std::vector<double>& g) const;
  // sum_i log(1 + exp(-y_i z_i)); `r`: its derivative by z_i, sigma(z_i) - [y_i = 1]. r may be null.
  double loss(std::span<const double> z, std::vector<double>* r) const;
  // Its second derivatives by z_i, at least 1e-12.
  static std::vector<double> curvature(std::span<const double> z);
  // sum_i h_i x_ij x_ik over the given n columns and, behind them, a column of ones: (n + 1, n + 1), row-major; summed
  // in float.
  std::vector<double> weighted_products(std::span<const int64_t> columns, std::span<const double> h) const;
  // Newton's method or, with many columns, L-BFGS; proximal Newton with coordinate descent. All from `start` (empty:
  // zero); a model is of columns as they were given.
  LinearModel fit_l2(double c, const LinearModel& start) const;
  LinearModel fit_l1(double c, const LinearModel& start) const;

 private:
  // From a model of the columns as they were given to one of them less their means, and back.
  LinearModel started(const LinearModel& start) const;
  LinearModel finished(LinearModel model) const;
  int64_t rows_, columns_;
  std::vector<float> by_column_;  // (columns, rows)
  std::vector<double> means_;     // of columns
  std::vector<int> labels_;
};

}  // namespace lmx::train
