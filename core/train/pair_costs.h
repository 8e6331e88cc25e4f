// The time that a sub-batch takes, by its shape. Batchers balance these times (Ott et al. 2018, section 5).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "recipe/components.h"

namespace lmx {

// A table time(sentences, source length, target length) on a grid. Entries are measured when they are first needed, and
// values between them are interpolated linearly.
class PairCosts {
 public:
  using Shape3 = std::array<int64_t, 3>;  // sentences, source, target
  // Seconds for one shape: the minimum of `repeats` measurements.
  using Measure = std::function<double(const Shape3& shape, int64_t repeats)>;
  // `measure` produces the entries of the grid. If it is empty, a missing entry is an error.
  explicit PairCosts(Measure measure);
  // The table of a run, as written by to_json(). Nothing is measured again, so that the run's sub-batches stay the
  // same. UserError: `text` is damaged; the message contains `from`. seconds() throws a UserError for a shape that the
  // table lacks.
  PairCosts(const std::string& text, std::string from);
  double seconds(int64_t sentences, int64_t source, int64_t target);
  // Measures every entry again, in two passes over the whole table, and keeps the minimum. If the machine's speed
  // changes while the table is filled, neighbouring entries would otherwise differ by this change. Returns false
  // without measuring if the table belongs to a run or is empty. After true, everything that was computed from the
  // table must be computed again.
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

// Seconds of a forward and a backward pass: the minimum of `repeats` measurements. Clears the gradients afterwards.
double time_pairs(Context& ctx, const Network& network, ParameterStore& params, const Batch& batch, int64_t repeats);
// The same for random sentences of these lengths.
double measure_pairs(Context& ctx, const Network& network, ParameterStore& params, int64_t vocabulary,
                     const PairCosts::Shape3& shape, int64_t repeats);
// Multiply-adds of a forward pass over this number of pairs of these lengths, including the output layer.
double macs_of_pairs(const Network& network, int64_t sentences, int64_t source, int64_t target);

}  // namespace lmx
