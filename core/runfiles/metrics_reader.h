// Reads metrics.jsonl. A line may have any content: if a run is killed, its last line is incomplete.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runfiles/metrics.h"

namespace lmx::train {

// Step and split of the record in a complete line; step -1 if the line is no record.
struct RecordName {
  int64_t step = -1;
  std::string split;
};
RecordName name_of_line(const std::string& line);

// The highest step in the metrics.jsonl of a run; 0 if it has no record.
int64_t last_recorded_step(const std::string& run);

// Validation perplexity by step, from the metrics.jsonl of a run. If a step was validated several times, the last value
// counts. Lines that are no validation records are skipped.
std::map<int64_t, double> validations(const std::string& run);

// Adds a record that scores the translation of a split by the run's final parameters. Replaces an earlier record of the
// same step and split that contains a BLEU value. Atomic. RunError: a full disk.
void write_translation(const std::string& run, const Record& record);

}  // namespace lmx::train
