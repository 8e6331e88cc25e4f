// metrics.jsonl as the core reads it back. A line may be anything: a kill leaves half of one.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "train/metrics.h"

namespace lmx::train {

// The step of a whole line; -1 for anything else.
int64_t step_of_line(const std::string& line);

// Validation perplexity by step, as the metrics.jsonl of a run has it; a step that was trained again counts as it was
// last. Lines that are none of a validation are passed over.
LMX_API std::map<int64_t, double> validations(const std::string& run);

// Adds a record of what the run's last parameters translate a split to: of a step whose earlier record of that, which a
// run that is asked again has, makes room. Atomic. RunError: a full disk.
void write_translation(const std::string& run, const Record& record);

}  // namespace lmx::train
