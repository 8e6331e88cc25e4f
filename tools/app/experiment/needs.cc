#include "app/experiment/needs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/datasets/open.h"
#include "app/datasets/survey.h"
#include "app/jobs/cores.h"
#include "app/plan/plan.h"
#include "app/plan/variants.h"
#include "app/run/search_path.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

lmx::plan::Request request_of(const Cell& cell, const std::string& machine) {
  lmx::plan::Request request;
  request.recipe = cell.recipe_file;
  request.machine = machine;
  request.compose.overrides = cell.overrides;
  request.compose = with_plugins(request.compose);
  return request;
}

// Cores of this computer that a cell uses at the same time. Virtual ranks run beside each other, each with its threads.
int64_t cores_of(const Cell& cell) {
  const int64_t here = jobs::own_core_count(), threads = cell.demand.threads;
  if (cell.virtual_ranks) return std::min(here, cell.ranks * std::max<int64_t>(1, threads));
  return threads > 0 ? std::min(here, threads * std::max<int64_t>(1, cell.demand.processes)) : here;
}

// The device of the ranks of one process: one each, the cores of this computer, or one that they share.
enum class Devices { own, cores_here, shared };

// Hours of a cell's training; nothing if its length is not known, or if the planner refuses it. `epoch_tokens`: NaN if
// they are not known; the planner would count them again for each cell.
std::optional<double> hours_of(const Cell& cell, const std::string& machine, Devices devices, double epoch_tokens) {
  lmx::plan::Request request = request_of(cell, machine);
  request.epoch_tokens = epoch_tokens;
  if (devices == Devices::cores_here) request.cores = cores_of(cell);
  try {
    lmx::plan::Planner planner(request);
    const lmx::plan::Plan plan = planner.rows(1);
    const lmx::plan::Row& row = plan.rows[0];
    if (!row.total_hours || !std::isfinite(*row.total_hours)) return {};
    if (devices == Devices::own || (devices == Devices::shared && !cell.virtual_ranks)) return row.total_hours;
    // A calibrated machine does not state its cores: it is as fast as one rank was.
    const lmx::plan::DeviceConfig& device = plan.machine.device;
    const bool here = devices == Devices::cores_here;
    const bool as_one = here && device.kind == "cpu" && device.cores == 0 && cell.virtual_ranks;
    const double at_once = as_one ? static_cast<double>(cores_of(cell)) : 1;
    return *row.total_hours / row.time.step_s() * row.in_turn_s / at_once;
  } catch (const lmx::UserError&) {
    return {};
  }
}

}  // namespace

void require_machine(const Cell& cell, const std::string& machine) {
  bool swept = false;
  (void)lmx::plan::variants_of(request_of(cell, machine), swept);
}

TimePlan::TimePlan(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
                   const std::map<std::string, PlannedCell>& planned, const std::string& machine, DataChecks& checks)
    : scale_(scale), planned_(planned), checks_(checks) {
  const PlanConfig& plan = plan_config(experiment, scale);
  own_ = machine.empty() && plan.given;
  machine_ = !machine.empty() ? machine : own_ ? plan.machine : scale.id == kDesk ? "desk_10gbe" : "h100_node";
  shown_ = own_ ? machines_of(plan, cells) : machine_;
}

std::optional<double> TimePlan::hours(const Cell& cell) const {
  if (const auto found = planned_.find(cell.id); own_ && found != planned_.end()) {
    // With the speed that the paper's cell sets.
    const auto column = found->second.columns.find("hours");
    return column == found->second.columns.end() ? std::nullopt : std::optional(column->second);
  }
  const Devices devices = scale_.one_device()  ? Devices::shared
                          : scale_.id == kDesk ? Devices::cores_here
                                               : Devices::own;
  return hours_of(cell, filled(cell, machine_), devices, checks_.of(cell).train_tokens);
}

Needs needs_of(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
               const std::map<std::string, PlannedCell>& planned, const std::string& machine, DataChecks& checks) {
  const TimePlan times(experiment, scale, cells, planned, machine, checks);
  Needs needs;
  needs.experiment = experiment.id;
  needs.scale = scale.id;
  needs.machine = times.machine();
  std::vector<std::string> ids;
  for (const Cell& cell : cells) {
    ids.push_back(cell.id);
    needs.planned += !cell.runs && planned.contains(cell.id);
    if (!cell.runs || !cell.same_as.empty()) continue;
    ++needs.runs;
    if (cell.types) continue;
    needs.ranks = std::max(needs.ranks, cell.ranks);
    const std::optional<double> hours = times.hours(cell);
    needs.hours += hours.value_or(0);
    needs.unknown += !hours;
  }
  needs.missing = data_problems(cells, ids, checks);
  return needs;
}

const DataChecks::Check& DataChecks::of(const Cell& cell) {
  const lmx::Node& data = *cell.composed.find("data");
  const auto [found, fresh] = checks_.emplace(lmx::to_yaml(data), Check{});
  if (!fresh) return found->second;
  const lmx::DataCheck check = lmx::check_dataset(data);
  found->second.findings = check.findings;
  std::optional<int64_t> tokens = check.train_tokens;
  if (!tokens && check.findings.empty()) tokens = lmx::sampled_train_tokens(data);
  if (tokens) found->second.train_tokens = static_cast<double>(*tokens);
  return found->second;
}

std::set<std::string> data_problems(const std::vector<Cell>& cells, const std::vector<std::string>& wanted,
                                    DataChecks& checks) {
  std::set<std::string> problems;
  for (const Cell& cell : cells) {
    if (!cell.runs || std::find(wanted.begin(), wanted.end(), cell.id) == wanted.end()) continue;
    const std::vector<std::string>& findings = checks.of(cell).findings;
    problems.insert(findings.begin(), findings.end());
  }
  return problems;
}

}  // namespace lmx_cli::experiments
