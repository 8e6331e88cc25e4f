// The measurements of a run: one record for each log step, as a line of metrics.jsonl and as TensorBoard scalars.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmx {

// Values in the order in which they are written.
struct Record {
  int64_t step = 0;
  std::string split;  // "train", "valid" or "rank"
  std::vector<std::pair<std::string, double>> values;
};

// `{"step":50,"split":"train","nll_nat":4.1,...}`. Values that are not finite become strings.
std::string to_json_line(const Record& record);

// The lines that a resumed run found in its metrics.jsonl.
struct KeptLines {
  int64_t train = 0;             // training records up to the step from which the run resumed
  std::vector<int64_t> damaged;  // numbers, from 1, of complete lines that are no records
};

// Appends lines to metrics.jsonl, each with one write if the disk is not full. RunError: a full disk.
class MetricsFile {
 public:
  // Keeps the records of an existing file up to `resume_step` and removes the rest: later records, damaged lines, and
  // an incomplete last line of a killed run.
  MetricsFile(std::string path, int64_t resume_step, bool evaluated = true);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const Record& record);
  void write_line(const std::string& line);  // a record that another rank wrote with to_json_line
  void sync();                               // returns when all lines are on disk
  const KeptLines& kept() const { return kept_; }

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int descriptor_ = -1;
  KeptLines kept_;
};

// Reads metrics.jsonl. A line may have any content: if a run is killed, its last line is incomplete.

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

}  // namespace lmx
