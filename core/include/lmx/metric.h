// Metrics: numbers that a validation computes beside the likelihood, such as how often the next word is among the most
// probable ones (`metric:` of a recipe).
//
// A metric adds up numbers over the targets of a validation. Ranks divide the targets, and the sums of all ranks are
// added in rank order. A metric cannot change a run: it sees predictions alone, after training has stopped for the
// validation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// The prediction of a model for one target, by the full softmax.
struct Prediction {
  int32_t target = 0;  // the id of the word that follows in the text
  double nats = 0;     // its negative log-likelihood
  // The ids of the most probable words and their probabilities, in descending order, of equal ones the lower id first:
  // as many as the metric asks for, or all words if there are fewer. A probability that is not a number is left out.
  std::span<const int32_t> words = {};
  std::span<const double> probabilities = {};
};

// Stateless and thread-safe.
class LMX_API Metric {
 public:
  using Factory = std::unique_ptr<Metric> (*)(const Node& config, const std::string& path);

  virtual ~Metric();
  virtual int64_t words() const = 0;  // how many of the most probable words it needs, at least 0
  virtual int64_t sums() const = 0;   // how many numbers it adds up, at least 1
  // Adds the numbers of a prediction to `sums` (sums()), which begin with 0. The result of a validation must not depend
  // on the order of predictions, nor on how they are divided among ranks.
  virtual void add(const Prediction& prediction, std::span<double> sums) const = 0;
  // The results of a validation: names of small letters, digits, underscores and points, always the same, and numbers.
  // `targets`: the number of predictions that were added, at least 1.
  virtual std::vector<std::pair<std::string, double>> values(std::span<const double> sums, int64_t targets) const = 0;
};
using MetricFactory = Metric::Factory;

}  // namespace lmx
