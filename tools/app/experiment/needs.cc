#include "app/experiment/needs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/datasets/open.h"
#include "app/datasets/sample.h"
#include "app/jobs/cores.h"
#include "app/plan/plan.h"
#include "app/plan/variants.h"
#include "app/run/search_path.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

constexpr const char* kDesk = "desk_10gbe";

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

// Hours of a cell's training; nothing if its length is not known, or if the planner refuses it. `here`: on one computer
// with as many cores as this one. `epoch_tokens`: NaN if they are not known; the planner would count them again for
// each cell.
std::optional<double> hours_of(const Cell& cell, const std::string& machine, bool here, double epoch_tokens) {
  lmx::plan::Request request = request_of(cell, machine);
  request.epoch_tokens = epoch_tokens;
  if (here) request.cores = cores_of(cell);
  try {
    lmx::plan::Planner planner(request);
    const lmx::plan::Plan plan = planner.rows(1);
    const lmx::plan::Row& row = plan.rows[0];
    if (!row.total_hours || !std::isfinite(*row.total_hours)) return {};
    if (!here) return row.total_hours;
    // A calibrated machine does not state its cores: it is as fast as one rank was.
    const lmx::plan::DeviceConfig& device = plan.machine.device;
    const bool as_one = device.kind == "cpu" && device.cores == 0 && cell.virtual_ranks;
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

Needs needs_of(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
               const std::map<std::string, PlannedCell>& planned, const std::string& machine, DataChecks& checks) {
  const PlanConfig& plan = plan_config(experiment, scale);
  const bool own = machine.empty() && plan.given;
  Needs needs;
  needs.experiment = experiment.id;
  needs.scale = scale.id;
  const std::string machine_of_cells = !machine.empty()     ? machine
                                       : own                ? plan.machine
                                       : scale.id == "desk" ? kDesk
                                                            : "h100_node";
  needs.machine = own ? machines_of(plan, cells) : machine_of_cells;
  std::vector<std::string> ids;
  for (const Cell& cell : cells) {
    ids.push_back(cell.id);
    const auto found = planned.find(cell.id);
    needs.planned += !cell.runs && found != planned.end();
    if (!cell.runs || !cell.same_as.empty()) continue;
    ++needs.runs;
    if (cell.types) continue;
    needs.ranks = std::max(needs.ranks, cell.ranks);
    std::optional<double> hours;
    if (own && found != planned.end()) {  // with the speed that the paper's cell sets
      const auto column = found->second.columns.find("hours");
      if (column != found->second.columns.end()) hours = column->second;
    } else {
      hours = hours_of(cell, filled(cell, machine_of_cells), scale.id == "desk", checks.of(cell).train_tokens);
    }
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
