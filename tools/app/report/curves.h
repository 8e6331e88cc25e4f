// The records of a run as curves, few enough points to draw.
#pragma once

#include <string>
#include <vector>

#include "app/records/run_records.h"

namespace lmx_cli::reports {

struct Curve {
  std::string split, key;
  std::vector<double> x, y;  // step; the value, which may be NaN or infinite
};

// What a step is in other units, for axes: of train records, all of one length.
struct Clock {
  std::vector<double> step, tokens, epoch, hours;  // hours of training: validation and checkpoints left out
};

// Every number of splits train, valid and test and of sync strategies ("<rule>/<name>") but those of single units,
// parameters and sub-batches (other names with a slash) and the ones that are axes; in the order of the keys. Bytes and
// seconds of communication, which a record holds for all its steps, are divided by their number.
std::vector<Curve> curves_of(const std::vector<RunRecord>& records);
Clock clock_of(const std::vector<RunRecord>& records);

// At most `most` points (at least 4): of each stretch of a longer curve its first, least and greatest, and the last
// point of all.
Curve thinned(const Curve& curve, size_t most);
Clock thinned(const Clock& clock, size_t most);

}  // namespace lmx_cli::reports
