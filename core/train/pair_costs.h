// How long a sub-batch takes, by its shape: what batchers balance (Ott et al. 2018, section 5).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "recipe/components.h"

namespace lmx::train {

// A table time(sentences, source length, target length) on a grid, filled where it is asked and linear between.
class PairCosts {
 public:
  using Shape3 = std::array<int64_t, 3>;  // sentences, source, target
  // Seconds of one shape, the quickest of `repeats`.
  using Measure = std::function<double(const Shape3& shape, int64_t repeats)>;
  // `measure` makes the grid's entries; empty: what is not in the table is an error.
  explicit PairCosts(Measure measure);
  // The table of a run, as to_json() wrote it: nothing is measured anew, so that its sub-batches stay what they were.
  // UserError: `text` is damaged; `from` names it. Later, a shape that it lacks.
  PairCosts(const std::string& text, std::string from);
  double seconds(int64_t sentences, int64_t source, int64_t target);
  // Times every entry again, twice over the whole table, and keeps the quickest: where a machine's speed drifts while
  // the table is filled, neighbours would otherwise differ by the drift. False, and nothing done, for a run's table and
  // an empty one; else what was made by it is to be made again.
  bool settle();
  bool empty() const { return table_.empty(); }
  int64_t size() const { return static_cast<int64_t>(table_.size()); }
  std::string to_json() const;

 private:
  double entry(const Shape3& shape);
  Measure measure_;
  std::string from_;
  std::map<Shape3, double> table_;
};

// Seconds of a forward and backward, the quickest of `repeats`. Leaves no gradients behind.
double time_pairs(Context& ctx, const Network& network, ParameterStore& params, const Batch& batch, int64_t repeats);
// Of made-up sentences of these lengths.
double measure_pairs(Context& ctx, const Network& network, ParameterStore& params, int64_t vocabulary,
                     const PairCosts::Shape3& shape, int64_t repeats);
// Multiply-adds of a forward of so many pairs of these lengths, the output layer's among them.
double macs_of_pairs(const Network& network, int64_t sentences, int64_t source, int64_t target);

}  // namespace lmx::train
