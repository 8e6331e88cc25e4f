// Solvers of logistic regression over a dense matrix; transfer.h states the objective.
#pragma once

#include <span>
#include <vector>

#include "app/probe/transfer.h"

namespace lmx::train {

// The data of a fit, in the layout of the solvers: columns minus their means. The bias compensates for the means. (A
// column with small deviations from a large mean is nearly collinear with the bias; then solvers need very many steps,
// or end beside the minimum.) These centred columns are the x of all formulas here. REQUIRES: as many labels as rows,
// rows > 0.
class LogisticProblem {
 public:
  explicit LogisticProblem(const FeatureMatrix& features);
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const float* column(int64_t j) const { return by_column_.data() + j * rows_; }
  // Computes z = X w + b.
  void scores(std::span<const double> w, double b, std::vector<double>& z) const;
  // Computes g_j = sum_i x_ij r_i.
  void gradient(std::span<const double> r, std::vector<double>& g) const;
  // Returns sum_i log(1 + exp(-y_i z_i)). `r` receives the derivative by z_i, sigma(z_i) - [y_i = 1]; it may be null.
  double loss(std::span<const double> z, std::vector<double>* r) const;
  // Returns the second derivatives of the loss by z_i, at least 1e-12.
  static std::vector<double> curvature(std::span<const double> z);
  // Returns sum_i h_i x_ij x_ik over the given n columns, followed by a column of ones: (n + 1, n + 1), row-major;
  // summed in float.
  std::vector<double> weighted_products(std::span<const int64_t> columns, std::span<const double> h) const;
  // L2: Newton's method or, with many columns, L-BFGS. L1: proximal Newton with coordinate descent. Both begin at
  // `start` (empty: zero). The models refer to the original columns.
  LinearModel fit_l2(double c, const LinearModel& start) const;
  LinearModel fit_l1(double c, const LinearModel& start) const;

 private:
  // Convert a model of the original columns to one of the centred columns, and back.
  LinearModel started(const LinearModel& start) const;
  LinearModel finished(LinearModel model) const;
  int64_t rows_, columns_;
  std::vector<float> by_column_;  // (columns, rows)
  std::vector<double> means_;     // of the columns
  std::vector<int> labels_;
};

}  // namespace lmx::train
