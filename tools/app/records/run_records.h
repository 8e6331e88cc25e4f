// metrics.jsonl of a run, read back (docs/run-files.md).
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

// Records of `directory`/metrics.jsonl, in order; a last line that a killed run left half-written is left out.
// UserError: no such file, a line that is no record.
std::vector<RunRecord> read_records(const std::string& directory);

// True where `text` fits `pattern`, in which each * stands for any text.
bool fits(const std::string& pattern, const std::string& text);

}  // namespace lmx_cli
