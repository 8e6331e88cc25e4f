#include "app/records/run_records.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/records/json_number.h"
#include "lmx/error.h"

namespace lmx_cli {
namespace {

using Json = nlohmann::json;

bool read_record(const std::string& line, RunRecord& record) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer() || !json.contains("split") ||
      !json["split"].is_string())
    return false;
  record.step = json["step"].get<int64_t>();
  record.split = json["split"].get<std::string>();
  for (const auto& [key, value] : json.items())
    if (const auto number = number_of(value); number && key != "step") record.values[key] = *number;
  return true;
}

}  // namespace

std::vector<RunRecord> read_records(const std::string& directory) {
  const std::string path = directory + "/metrics.jsonl";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::error_code error;
    const bool there = std::filesystem::is_directory(directory, error);
    throw lmx::UserError(there ? lmx::str("[records] ", directory, " holds no run: it has no metrics.jsonl")
                               : lmx::str("[records] there is no run directory ", directory));
  }
  std::vector<RunRecord> records;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    RunRecord record;
    if (read_record(line, record)) {
      records.push_back(std::move(record));
    } else if (!file.eof()) {  // only the last line may be incomplete; then its line end is missing
      throw lmx::UserError(lmx::str("[records] ", path, ":", number, " is no record"));
    }
  }
  return records;
}

bool fits(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace lmx_cli
