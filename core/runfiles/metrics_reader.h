// metrics.jsonl as the core reads it back. A line may be anything: a kill leaves half of one.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runfiles/metrics.h"

namespace lmx::train {

// Step and split of the record in a whole line; step -1 if the line is no record.
struct RecordName {
  int64_t step = -1;
  std::string split;
};
RecordName name_of_line(const std::string& line);

// The highest step that the metrics.jsonl of a run names; 0: none.
int64_t last_recorded_step(const std::string& run);

// Validation perplexity by step, as the metrics.jsonl of a run has it; a step that was trained again counts as it was
// last. Lines that are none of a validation are passed over.
std::map<int64_t, double> validations(const std::string& run);

// Adds a record of what the run's last parameters translate a split to: of a step whose earlier record of that, which a
// run that is asked again has, makes room. Atomic. RunError: a full disk.
void write_translation(const std::string& run, const Record& record);

}  // namespace lmx::train
