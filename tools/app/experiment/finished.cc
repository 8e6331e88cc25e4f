#include "app/experiment/finished.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {

namespace fs = std::filesystem;
using lmx::str;

namespace {

// The name of the GPU or of the processor of a run's last start; "" if its provenance.json does not say.
std::string device_of(const std::string& run) {
  using Json = nlohmann::json;
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
    if (jobs::read_text(recipe(cell)) != cell.yaml) other += (other.empty() ? "" : ", ") + cell.id;
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
