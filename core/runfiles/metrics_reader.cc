#include "runfiles/metrics_reader.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/output_file.h"
#include "runfiles/checkpoint.h"

namespace lmx::train {
namespace {

using Json = nlohmann::json;

Json parse_line(const std::string& line) {
  return Json::parse(line, nullptr, false);
}

int64_t step_of(const Json& record) {
  if (!record.is_object()) return -1;
  const auto step = record.find("step");
  return step != record.end() && step->is_number_integer() ? step->get<int64_t>() : -1;
}

bool is_of(const Json& record, const std::string& split) {
  const auto own = record.find("split");
  return own != record.end() && *own == split;
}

}  // namespace

RecordName name_of_line(const std::string& line) {
  const Json record = parse_line(line);
  const int64_t step = step_of(record);
  const auto split = step < 0 ? record.end() : record.find("split");
  if (step < 0 || split == record.end() || !split->is_string()) return {};
  return {step, split->get<std::string>()};
}

int64_t last_recorded_step(const std::string& run) {
  int64_t last = 0;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) last = std::max(last, name_of_line(line).step);
  return last;
}

std::map<int64_t, double> validations(const std::string& run) {
  std::map<int64_t, double> ppl;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json record = parse_line(line);
    const int64_t step = step_of(record);
    if (step < 0 || !is_of(record, "valid")) continue;
    if (const auto found = record.find("ppl"); found != record.end() && found->is_number()) ppl[step] = *found;
  }
  return ppl;
}

void write_translation(const std::string& run, const Record& record) {
  const std::string path = run + "/metrics.jsonl", before = read_file(path);
  std::string text;
  for (size_t begin = 0, end; (end = before.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = before.substr(begin, end - begin);
    const Json there = parse_line(line);
    const bool same = step_of(there) == record.step && is_of(there, record.split) && there.contains("BLEU");
    if (!same) text += line + "\n";
  }
  write_file(path, text + to_json_line(record) + "\n");
}

}  // namespace lmx::train
