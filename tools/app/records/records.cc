#include "app/records/records.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

template <class AnyJson>
std::optional<double> read_number(const AnyJson& json) {
  using Limits = std::numeric_limits<double>;
  if (json.is_number()) return json.template get<double>();
  const std::string text = json.is_string() ? json.template get<std::string>() : "";
  if (text == "NaN") return Limits::quiet_NaN();
  if (text == "Infinity") return Limits::infinity();
  if (text == "-Infinity") return -Limits::infinity();
  return std::nullopt;
}

}  // namespace

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = json_number(*value);
}

std::optional<double> number_of(const Json& json) {
  return read_number(json);
}
std::optional<double> number_of(const nlohmann::json& json) {
  return read_number(json);
}

namespace {

bool read_record(const std::string& line, RunRecord& record) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
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
    throw UserError(there ? str("[records] ", directory, " holds no run: it has no metrics.jsonl")
                          : str("[records] there is no run directory ", directory));
  }
  std::vector<RunRecord> records;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    RunRecord record;
    if (read_record(line, record)) {
      records.push_back(std::move(record));
    } else if (!file.eof()) {  // only the last line may be incomplete; then its line end is missing
      throw UserError(str("[records] ", path, ":", number, " is no record"));
    }
  }
  return records;
}

bool fits(const std::string& pattern, const std::string& text) {
  const std::vector<std::string> parts = config::split(pattern, '*');
  if (parts.size() == 1) return pattern == text;
  size_t at = parts[0].size();
  for (size_t i = 1; i + 1 < parts.size() && at <= text.size(); ++i)  // each part at its first place
    at = std::min(text.find(parts[i], at), text.size()) + parts[i].size();
  return text.starts_with(parts[0]) && at + parts.back().size() <= text.size() && text.ends_with(parts.back());
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> read_journal(const std::string& path) {
  const std::string text = read_text(path);
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  if (begin < text.size() && truncate(path.c_str(), static_cast<off_t>(begin)) != 0)
    throw RunError(str("[jobs] cannot write ", path, ": ", std::strerror(errno)));
  return lines;
}

void append_line(const std::string& path, const std::string& line) {
  const std::string text = line + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  errno = 0;
  const bool whole =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
  const int reason = errno;
  if (file >= 0) close(file);
  if (!whole) throw RunError(str("[jobs] cannot write ", path, ": ", reason ? std::strerror(reason) : "disk full"));
}

namespace {

std::string text_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

RunStatus read_status(const std::string& run) {
  const auto json = nlohmann::json::parse(read_text(run + "/status.json"), nullptr, false);
  if (!json.is_object()) return {};
  const auto step = json.find("step");
  const bool counted = step != json.end() && step->is_number_integer();
  return {text_at(json, "state"), text_at(json, "cause"), text_at(json, "reason"), counted ? step->get<int64_t>() : 0,
          text_at(json, "time")};
}

}  // namespace lmx::app
