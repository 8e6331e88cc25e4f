#include "runfiles/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json_object.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx {
namespace {

// `evaluated`: the step's validation is complete, so its line stays. Otherwise a line of an interrupted run is removed,
// since the validation is repeated.
std::string lines_up_to(const std::string& text, int64_t step, bool evaluated, KeptLines& found) {
  std::string kept;
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const RecordName record = name_of_line(line);
    const bool pending = record.step == step && !evaluated && record.split == "valid";
    ++number;
    if (record.step < 0) found.damaged.push_back(number);
    if (record.step < 0 || record.step > step || pending) continue;
    kept += line + "\n";
    found.train += record.split == "train";
  }
  return kept;
}

}  // namespace

std::string to_json_line(const Record& record) {
  JsonObject line;
  line.add("step", record.step).add("split", record.split);
  for (const auto& [name, value] : record.values) line.add(name, value);
  return line.text();
}

MetricsFile::MetricsFile(std::string path, int64_t resume_step, bool evaluated) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    const std::string before = read_file(path_), after = lines_up_to(before, resume_step, evaluated, kept_);
    if (after != before) write_file(path_, after);
  }
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw RunError(str("[metrics] cannot write ", path_, ": ", std::strerror(errno)));
}

MetricsFile::~MetricsFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void MetricsFile::write(const Record& record) {
  write_line(to_json_line(record));
}

void MetricsFile::write_line(const std::string& text) {
  const std::string line = text + "\n";
  for (size_t done = 0; done < line.size();) {  // an almost full disk stores a part; the next write() gives the error
    const ssize_t n = ::write(descriptor_, line.data() + done, line.size() - done);
    if (n < 0 && errno != EINTR) fail(errno);
    done += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
}

void MetricsFile::sync() {
  if (fsync(descriptor_) != 0) fail(errno);
}

void MetricsFile::fail(int error) const {
  throw RunError(str("[metrics] cannot write ", path_, ": ", std::strerror(error)));
}

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

}  // namespace lmx
