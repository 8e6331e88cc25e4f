// Reads metrics.jsonl of a run (docs/run-files.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmx_cli {

struct RunRecord {
  int64_t step = 0;
  std::string split;  // train, valid, rank
  std::map<std::string, double> values;
  double at(const std::string& key, double otherwise = 0) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
};

// Returns the records of `directory`/metrics.jsonl, in order. Ignores an incomplete last line of a killed run.
// UserError: no such file, a line that is not a record.
std::vector<RunRecord> read_records(const std::string& directory);

// Returns whether `text` matches `pattern`, in which each * matches any text.
bool fits(const std::string& pattern, const std::string& text);

}  // namespace lmx_cli
