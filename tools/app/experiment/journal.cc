#include "app/experiment/journal.h"

#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

Journal::Entry read_entry(const Json& json) {
  Journal::Entry entry;
  entry.seconds = json.at("seconds").get<double>();
  if (json.contains("diverged")) entry.diverged = json.at("diverged").get<std::string>();
  for (const Json& evaluation : json.at("evaluations")) {
    const Json& step = evaluation.at("step");
    if (!step.is_number_integer()) throw UserError("a step is no whole number");
    RunRecord record{step.get<int64_t>(), evaluation.at("split").get<std::string>(), {}};
    for (const auto& [key, value] : evaluation.items())
      if (const auto number = number_of(value); number && key != "step") record.values[key] = *number;
    entry.evaluations.push_back(std::move(record));
  }
  return entry;
}

}  // namespace

Journal::Journal(std::string path) : path_(std::move(path)) {
  const auto damaged = [&](const char* why) {
    return UserError(str("[experiment] ", path_, " is damaged (", why, "); remove its folder or give --out"));
  };
  for (const std::string& line : read_journal(path_)) {
    try {
      const Json json = Json::parse(line);
      entries_[json.at("cell").get<std::string>()] = read_entry(json);
    } catch (const Json::exception& e) {
      throw damaged(e.what());
    } catch (const UserError& e) {
      throw damaged(e.what());
    }
  }
}

const Journal::Entry* Journal::find(const std::string& cell) const {
  const auto found = entries_.find(cell);
  return found == entries_.end() ? nullptr : &found->second;
}

void Journal::add(const std::string& cell, const Entry& entry) {
  Json json{{"cell", cell}, {"seconds", entry.seconds}, {"evaluations", Json::array()}};
  if (!entry.diverged.empty()) json["diverged"] = entry.diverged;
  for (const RunRecord& r : entry.evaluations) {
    Json evaluation{{"split", r.split}, {"step", r.step}};
    for (const auto& [key, value] : r.values) evaluation[key] = json_number(value);
    json["evaluations"].push_back(std::move(evaluation));
  }
  append_line(path_, json.dump());
  entries_[cell] = entry;
}

}  // namespace lmx::app::experiment
