#include "app/experiment/journal.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "app/run/run.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using Json = nlohmann::ordered_json;

Journal::Entry read_entry(const Json& json) {
  Journal::Entry entry;
  entry.seconds = json.at("seconds").get<double>();
  if (json.contains("diverged")) entry.diverged = json.at("diverged").get<std::string>();
  for (const Json& evaluation : json.at("evaluations")) {
    const Json& step = evaluation.at("step");
    if (!step.is_number_integer()) throw lmx::UserError("a step is no whole number");
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
    return lmx::UserError(lmx::str("[experiment] ", path_, " is damaged (", why, "); remove its folder or give --out"));
  };
  for (const std::string& line : jobs::read_lines(path_)) {
    try {
      const Json json = Json::parse(line);
      entries_[json.at("cell").get<std::string>()] = read_entry(json);
    } catch (const Json::exception& e) {
      throw damaged(e.what());
    } catch (const lmx::UserError& e) {
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
  jobs::append_line(path_, json.dump());
  entries_[cell] = entry;
}

namespace {

namespace fs = std::filesystem;
using lmx::str;

// The name of the GPU or of the processor of a run's last start; "" if its provenance.json does not say.
std::string device_of(const std::string& run) {
  const Json all = Json::parse(jobs::read_text(run + "/provenance.json"), nullptr, false);
  if (!all.is_object() || !all.contains("starts") || !all["starts"].is_array() || all["starts"].empty()) return "";
  const Json& start = all["starts"].back();
  const Json::json_pointer gpu("/compute/cuda/name"), processor("/host/cpu");
  const Json::json_pointer& name = start.contains(gpu) ? gpu : processor;
  return start.contains(name) && start[name].is_string() ? start[name].get<std::string>() : "";
}

}  // namespace

Finished::Finished(const std::vector<Cell>& cells, std::string out)
    : cells_(cells), out_(std::move(out)), journal_(out_ + "/journal.jsonl") {
  check_recipes();
}

const Cell& Finished::source(const Cell& cell) const {
  if (cell.same_as.empty()) return cell;
  return *std::find_if(cells_.begin(), cells_.end(), [&](const Cell& c) { return c.id == cell.same_as; });
}

void Finished::check_recipes() const {
  std::string other;
  for (const Cell& cell : cells_) {
    std::error_code error;
    if (!cell.same_as.empty() || !cell.runs || !fs::exists(recipe(cell), error)) continue;
    const bool same = lmx::train::is_same_recipe(jobs::read_text(recipe(cell)), cell.yaml);
    if (!same) other += (other.empty() ? "" : ", ") + cell.id;
  }
  if (!other.empty())
    throw lmx::UserError(str("[experiment] ", out_, " holds cells that ran with another recipe: ", other,
                             "; remove their files in ", out_,
                             "/cells and journal.jsonl's lines, or give another --out"));
}

std::vector<RunRecord> Finished::records(const Cell& cell) const {
  std::vector<RunRecord> records;
  std::error_code error;  // a run that diverges at its first step has no records
  if (fs::exists(folder(cell) + "/metrics.jsonl", error)) records = read_records(folder(cell));
  const Journal::Entry* entry = journal_.find(source(cell).id);
  if (!entry) return records;
  records.insert(records.end(), entry->evaluations.begin(), entry->evaluations.end());
  if (!cell.types) records.push_back({0, kOutcome, {{kDiverged, entry->diverged.empty() ? 0.0 : 1.0}}});
  return records;
}

std::set<std::string> Finished::devices() const {
  std::set<std::string> names;
  for (const Cell& cell : cells_)
    if (cell.runs && !cell.types && done(cell)) names.insert(device_of(folder(cell)));
  names.erase("");
  return names;
}

std::map<std::string, std::vector<RunRecord>> Finished::all_records() const {
  std::map<std::string, std::vector<RunRecord>> all;
  for (const Cell& cell : cells_)
    if (cell.runs && done(cell)) all[cell.id] = records(cell);
  return all;
}

}  // namespace lmx_cli::experiments
