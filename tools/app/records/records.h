// Reads the files of runs and journals, for reports, sweeps and experiments: values of recipes, numbers of JSON,
// records and status of runs, and files of lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app {

// The median of measurements.

// REQUIRES: `values` is not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Single values of a recipe, by their paths.

// Returns "" if the recipe has no such key.
inline std::string text_at(const Node& recipe, const char* path) {
  const Node* node = recipe.at_path(path);
  return node ? node->text : "";
}

// Returns `otherwise` if there is no such key, or if its value is not a number.
inline double number_at(const Node& recipe, const char* path, double otherwise = 0) {
  return parse_double(text_at(recipe, path)).value_or(otherwise);
}

// Numbers in JSON files. JSON has no NaN or infinities, so they are written as strings, the same as in metrics.jsonl
// (runfiles/metrics.cc).

using Json = nlohmann::ordered_json;

Json json_number(double value);

// Sets `key` to `value` if there is one. Numbers go through json_number(): all digits, and strings for NaN and
// infinities.
void put(Json& object, const char* key, const std::optional<double>& value);

// Returns nullopt if `json` is neither a number nor one of "NaN", "Infinity", "-Infinity".
std::optional<double> number_of(const Json& json);
std::optional<double> number_of(const nlohmann::json& json);

// Reads metrics.jsonl of a run (docs/run-files.md).
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

// A file of lines that is only appended to, for journals. Each line is on disk before the next event.

// Returns the whole text of a file; "" if there is none.
std::string read_text(const std::string& path);

// Returns the complete lines, without their ends. Removes an incomplete last line from the file. RunError: it cannot be
// removed.
std::vector<std::string> read_journal(const std::string& path);

// The line is on disk when the function returns. RunError: a full disk; the next read_journal() removes the incomplete
// line.
void append_line(const std::string& path, const std::string& line);

// The status that a run reports to the program that started it.

// The contents of a run's status.json (docs/run-files.md); state is "" if there is none.
struct RunStatus {
  std::string state, cause, reason;
  int64_t step = 0;
  std::string time;  // time of writing: "2026-05-01T10:15:00+0200"
  bool diverged() const { return state == "failed" && cause == "diverged"; }
};
RunStatus read_status(const std::string& run);

}  // namespace lmx::app
