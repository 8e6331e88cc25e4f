// What a run measures: one record a log step, as a line of metrics.jsonl and as TensorBoard scalars.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmx::train {

// Values in the order in which they are written.
struct Record {
  int64_t step = 0;
  std::string split;  // "train", "valid" or "rank"
  std::vector<std::pair<std::string, double>> values;
};

// `,"lr":0.1,"ppl":"Infinity"`: the members of a JSON object; what JSON has no number for becomes a string.
std::string json_values(const std::vector<std::pair<std::string, double>>& values);

// `{"step":50,"split":"train","nll_nat":4.1,...}`; what JSON has no number for becomes a string.
std::string to_json_line(const Record& record);

// The lines that a resumed run found in its metrics.jsonl.
struct KeptLines {
  int64_t train = 0;             // records of the training up to the step that it resumed from
  std::vector<int64_t> damaged;  // numbers of whole lines, from 1, that are no records
};

// Appends to metrics.jsonl, each line in one write. RunError: a full disk.
class MetricsFile {
 public:
  // Keeps records up to `resume_step` of an existing file and drops the rest: later ones, damaged lines, and a last
  // line that a kill left half-written.
  MetricsFile(std::string path, int64_t resume_step, bool evaluated = true);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const Record& record);
  void write_line(const std::string& line);  // a record that another rank wrote as to_json_line
  void sync();                               // returns when all lines are on disk
  const KeptLines& kept() const { return kept_; }

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int descriptor_ = -1;
  KeptLines kept_;
};

}  // namespace lmx::train
