#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "data/files.h"
#include "lmx/checkpoint.h"
#include "lmx/error.h"
#include "train/metrics_reader.h"

namespace lmx::train {
namespace {

// `evaluated`: the step's validation is done, so its line stays; one that a kill left behind is written again.
std::string lines_up_to(const std::string& text, int64_t step, bool evaluated) {
  std::string kept;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const int64_t at = step_of_line(line);
    const bool pending = at == step && !evaluated && line.find("\"split\":\"valid\"") != std::string::npos;
    if (at >= 0 && at <= step && !pending) kept += line + "\n";
  }
  return kept;
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

double number_from_text(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw UserError(str("'", text, "' is no number"));
  return value;
}

std::string to_json_line(const Record& record) {
  std::string line = str("{\"step\":", record.step, ",\"split\":\"", record.split, "\"");
  for (const auto& [name, value] : record.values) {
    const std::string text = number_text(value);
    line += ",\"" + name + "\":" + (std::isfinite(value) ? text : "\"" + text + "\"");
  }
  return line + "}";
}

MetricsFile::MetricsFile(std::string path, int64_t resume_step, bool evaluated) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    const std::string before = data::read_file(path_), after = lines_up_to(before, resume_step, evaluated);
    if (after != before) write_file_atomically(path_, after);
  }
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
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
  errno = 0;
  if (::write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw RunError(str("[metrics] cannot write ", path_, ": ", errno ? std::strerror(errno) : "disk full"));
}

}  // namespace lmx::train
