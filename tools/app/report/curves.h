// The records of a run as curves with few enough points to draw.
#pragma once

#include <string>
#include <vector>

#include "app/records/run_records.h"

namespace lmx_cli::reports {

struct Curve {
  std::string split, key;
  std::vector<double> x, y;  // step; the value, which may be NaN or infinite
};

// Converts steps to other units, for axes: one entry per train record, so all vectors have the same length.
struct Clock {
  std::vector<double> step, tokens, epoch, hours;  // hours of training steps: without validation and checkpoints
};

// Returns every number of the splits train, valid and test and of sync strategies ("<rule>/<name>"), ordered by key.
// Excludes numbers of single units, parameters and sub-batches (other names with a slash), and numbers that are axes.
// Bytes and seconds of communication, which a record contains for all its steps, are divided by the number of steps.
std::vector<Curve> curves_of(const std::vector<RunRecord>& records);
Clock clock_of(const std::vector<RunRecord>& records);

// Returns at most `most` points (at least 4). Keeps the first, the least and the greatest point of each section of a
// longer curve, and its last point.
Curve thinned(const Curve& curve, size_t most);
Clock thinned(const Clock& clock, size_t most);

}  // namespace lmx_cli::reports
