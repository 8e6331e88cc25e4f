#include "journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using Json = nlohmann::ordered_json;

Journal::Entry read_entry(const Json& json) {
  Journal::Entry entry;
  entry.seconds = json.at("seconds").get<double>();
  for (const Json& evaluation : json.at("evaluations")) {
    RunRecord record{evaluation.at("step").get<int64_t>(), evaluation.at("split").get<std::string>(), {}};
    for (const char* key : {"ppl", "nll_nat", "tokens"}) record.values[key] = evaluation.at(key).get<double>();
    entry.evaluations.push_back(std::move(record));
  }
  return entry;
}

}  // namespace

Journal::Journal(std::string path) : path_(std::move(path)) {
  std::ostringstream content;
  content << std::ifstream(path_, std::ios::binary).rdbuf();
  const std::string text = content.str();
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    try {
      const Json json = Json::parse(text.substr(begin, end - begin));
      entries_[json.at("cell").get<std::string>()] = read_entry(json);
    } catch (const Json::exception& e) {
      throw lmx::UserError(lmx::str("[experiment] ", path_, " is damaged (", e.what(), "); remove its folder or give --out"));
    }
  }
  if (begin < text.size() && truncate(path_.c_str(), static_cast<off_t>(begin)) != 0)
    throw lmx::RunError(lmx::str("[experiment] cannot write ", path_, ": ", std::strerror(errno)));
}

const Journal::Entry* Journal::find(const std::string& cell) const {
  const auto found = entries_.find(cell);
  return found == entries_.end() ? nullptr : &found->second;
}

void Journal::add(const std::string& cell, const Entry& entry) {
  Json json{{"cell", cell}, {"seconds", entry.seconds}, {"evaluations", Json::array()}};
  for (const RunRecord& r : entry.evaluations)
    json["evaluations"].push_back({{"split", r.split},
                                   {"step", r.step},
                                   {"ppl", r.at("ppl")},
                                   {"nll_nat", r.at("nll_nat")},
                                   {"tokens", r.at("tokens")}});
  const std::string line = json.dump() + "\n";
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  errno = 0;
  const bool whole = file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(file) == 0;
  const int reason = errno;
  if (file >= 0) close(file);
  if (!whole)
    throw lmx::RunError(lmx::str("[experiment] cannot write ", path_, ": ", reason ? std::strerror(reason) : "disk full"));
  entries_[cell] = entry;
}

}  // namespace lmx_cli::experiments
