// lmx probe: linear classifiers over features, and the most informative single unit.
#include <algorithm>
#include <cmath>
#include <optional>

#include "app/probe/transfer.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx {
namespace {

using train::LogisticProblem;

void check_classes(const FeatureMatrix& f, const std::string& what) {
  if (f.rows == 0) throw UserError(str("[probe] the ", what, " features hold no text"));
  if (f.labels.empty()) throw UserError(str("[probe] the ", what, " features have no labels"));
  const auto ones = std::count(f.labels.begin(), f.labels.end(), 1);
  if (ones == 0 || ones == f.rows)
    throw UserError(str("[probe] all ", f.rows, " ", what, " texts have the label ", ones ? 1 : 0,
                        "; a probe separates two classes"));
}

void check(const FeatureMatrix& train, const FeatureMatrix& valid, const FeatureMatrix& test) {
  check_classes(train, "training");
  check_classes(valid, "validation");
  if (test.rows > 0 && test.labels.empty()) throw UserError("[probe] the test features have no labels");
  for (const FeatureMatrix* f : {&valid, &test})
    if (f->rows > 0 && f->columns != train.columns)
      throw UserError(str("[probe] the training features have ", train.columns, " columns, the ",
                          f == &valid ? "validation" : "test", " features ", f->columns,
                          "; they must come from one model and state"));
}

// The scales of standardised columns: value = mean + deviation * standardised value.
struct Scales {
  std::vector<double> mean, deviation;
};

// Standardises columns to mean 0 and variance 1 over the training texts; a constant column becomes 0.
Scales standardise(FeatureMatrix& train, FeatureMatrix& valid, FeatureMatrix& test) {
  const auto width = static_cast<size_t>(train.columns);
  std::vector<double> mean(width), deviation(width);
  for (size_t i = 0; i < train.values.size(); ++i) mean[i % width] += static_cast<double>(train.values[i]);
  for (double& m : mean) m /= static_cast<double>(train.rows);
  for (size_t i = 0; i < train.values.size(); ++i) {
    const double d = static_cast<double>(train.values[i]) - mean[i % width];
    deviation[i % width] += d * d;
  }
  for (double& d : deviation) d = std::sqrt(d / static_cast<double>(train.rows));
  const auto standardised = [&](double value, size_t column) {
    return deviation[column] > 0 ? static_cast<float>((value - mean[column]) / deviation[column]) : 0.0F;
  };
  for (FeatureMatrix* f : {&train, &valid, &test})
    for (size_t i = 0; i < f->values.size(); ++i)
      f->values[i] = standardised(static_cast<double>(f->values[i]), i % width);
  return {std::move(mean), std::move(deviation)};
}

LinearModel fit(const LogisticProblem& problem, const std::string& penalty, double c, const LinearModel& start) {
  return penalty == "l1" ? problem.fit_l1(c, start) : problem.fit_l2(c, start);
}

ProbeFit fit_path(const LogisticProblem& problem, const FeatureMatrix* sets[3], const std::string& penalty,
                  const std::vector<double>& cs) {
  ProbeFit best;
  LinearModel model;
  for (const double c : cs) {  // each fit starts from the previous one
    model = fit(problem, penalty, c, model);
    if (!model.converged)
      log_warn(str("[probe] ", penalty, " with C ", c, " did not converge in ", model.iterations, " iterations"));
    const double valid = accuracy(model, *sets[1]);
    if (best.penalty.empty() || valid > best.valid) best = {penalty, c, 0, valid, 0, 0, model};
  }
  best.train = accuracy(best.model, *sets[0]);
  best.test = sets[2]->rows > 0 ? accuracy(best.model, *sets[2]) : 0;
  best.used = static_cast<int64_t>(
      std::count_if(best.model.weights.begin(), best.model.weights.end(), [](double w) { return w != 0; }));
  return best;
}

FeatureMatrix column_of(const FeatureMatrix& f, int64_t unit) {
  FeatureMatrix one;
  one.rows = f.rows;
  one.columns = 1;
  one.labels = f.labels;
  for (int64_t r = 0; r < f.rows; ++r) one.values.push_back(f.values[static_cast<size_t>(r * f.columns + unit)]);
  return one;
}

StrongestUnit strongest_of(const ProbeFit& fitted, const FeatureMatrix* sets[3]) {
  const std::vector<double>& w = fitted.model.weights;
  const auto found = std::max_element(w.begin(), w.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  StrongestUnit s;
  s.unit = found - w.begin();
  s.weight = *found;
  const FeatureMatrix train = column_of(*sets[0], s.unit), valid = column_of(*sets[1], s.unit);
  const LinearModel alone = fit(LogisticProblem(train), fitted.penalty, fitted.c, {});
  s.threshold = alone.weights[0] != 0 ? -alone.bias / alone.weights[0] : 0;
  s.train = accuracy(alone, train);
  s.valid = accuracy(alone, valid);
  if (sets[2]->rows > 0) s.test = accuracy(alone, column_of(*sets[2], s.unit));
  return s;
}

}  // namespace

void check_probe(const ProbeOptions& o) {
  if (o.penalties.empty()) throw UserError("[probe] no penalty to fit with; there are l1 and l2");
  for (const std::string& p : o.penalties)
    if (p != "l1" && p != "l2")
      throw UserError(
          str("[probe] there is no penalty '", p, "'", did_you_mean(p, {"l1", "l2"}), "; there are l1 and l2"));
  for (const double c : o.c)
    if (!(c > 0) || std::isinf(c)) throw UserError(str("[probe] C must be a number above 0, got ", c));
}

LinearModel fit_logistic(const FeatureMatrix& features, const std::string& penalty, double c) {
  return fit(LogisticProblem(features), penalty, c, {});
}

double accuracy(const LinearModel& model, const FeatureMatrix& f) {
  int64_t right = 0;
  for (int64_t r = 0; r < f.rows; ++r) {
    double z = model.bias;
    for (int64_t c = 0; c < f.columns; ++c)
      z +=
          model.weights[static_cast<size_t>(c)] * static_cast<double>(f.values[static_cast<size_t>(r * f.columns + c)]);
    right += (z > 0) == (f.labels[static_cast<size_t>(r)] == 1);
  }
  return static_cast<double>(right) / static_cast<double>(f.rows);
}

ProbeResult probe(const FeatureMatrix& train, const FeatureMatrix& valid, const FeatureMatrix& test,
                  const ProbeOptions& options) {
  check_probe(options);
  check(train, valid, test);
  FeatureMatrix scaled[3];
  const FeatureMatrix* sets[3] = {&train, &valid, &test};
  std::optional<Scales> scales;
  if (options.standardise) {
    for (size_t i = 0; i < 3; ++i) scaled[i] = *sets[i];
    scales = standardise(scaled[0], scaled[1], scaled[2]);
    for (size_t i = 0; i < 3; ++i) sets[i] = &scaled[i];
  }
  std::vector<double> cs = options.c;
  for (int e = -8; options.c.empty() && e <= 0; ++e) cs.push_back(std::ldexp(1.0, e));
  std::sort(cs.begin(), cs.end());
  const LogisticProblem problem(*sets[0]);
  ProbeResult result;
  for (const std::string& penalty : options.penalties) result.fits.push_back(fit_path(problem, sets, penalty, cs));
  const auto l1 =
      std::find_if(result.fits.begin(), result.fits.end(), [](const ProbeFit& f) { return f.penalty == "l1"; });
  StrongestUnit& s = result.strongest = strongest_of(l1 != result.fits.end() ? *l1 : result.fits.front(), sets);
  const auto unit = static_cast<size_t>(s.unit);
  if (scales) s.threshold = scales->mean[unit] + scales->deviation[unit] * s.threshold;
  return result;
}

}  // namespace lmx
