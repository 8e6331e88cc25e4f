#include "app/experiment/planned.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>

#include "app/datasets/open.h"
#include "app/datasets/survey.h"
#include "app/jobs/launcher.h"
#include "app/plan/measured.h"
#include "app/plan/output.h"
#include "app/plan/plan.h"
#include "app/plan/variants.h"
#include "app/print/words.h"
#include "app/records/records.h"
#include "app/run/shipped.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

// The columns whose value follows from the time of a step alone.
const std::set<std::string> kFromStep{"step_s", "tokens_per_s", "hours_per_epoch", "hours", "price_per_epoch"};
const std::set<std::string> kTimes{"compute_s", "wait_s", "comm_s", "hidden_s", "exposed_s", "efficiency"};
constexpr const char* kEfficiency = "efficiency";

bool is_time(const std::string& column) {
  return kFromStep.contains(column) || kTimes.contains(column);
}

// The row of a plan under the names of its JSON.
std::map<std::string, double> columns_of(const nlohmann::ordered_json& row) {
  std::map<std::string, double> columns;
  for (const auto& [key, value] : row.items()) {
    if (value.is_boolean()) columns[key] = value.template get<bool>() ? 1 : 0;
    if (const auto number = number_of(value)) columns[key] = *number;
    if (value.is_object())
      for (const auto& [part, bytes] : value.items()) columns[key + "/" + part] = bytes.template get<double>();
  }
  return columns;
}

plan::Request request_of(const Cell& cell, const std::string& machine) {
  plan::Request request;
  request.recipe = cell.recipe_file;
  request.machine = machine;
  request.compose.overrides = cell.overrides;
  request.compose = with_plugins(request.compose);
  return request;
}

// Plans each cell once, whatever cells refer to it.
class CellPlanner {
 public:
  CellPlanner(const Experiment& experiment, const PlanConfig& config, const std::vector<Cell>& cells)
      : experiment_(experiment), config_(config), cells_(cells) {}

  std::map<std::string, PlannedCell> plan(const std::vector<const Measure*>& measures) {
    std::map<std::string, PlannedCell> planned;
    for (const Cell& cell : cells_) {
      const bool wanted = std::any_of(measures.begin(), measures.end(), [&](const Measure* m) {
        return chosen(experiment_, cell, m->only, "measures." + m->id + ".only");
      });
      if (cell.types || !wanted) continue;
      const plan::Plan& plan = plan_of(cell);
      PlannedCell& p = planned[cell.id];
      p.columns = columns_of(plan::json_of(plan)[0]);
      p.speed = plan.rows[0].speed;
      p.out_of_memory = p.columns.at("out_of_memory") != 0;
      p.sets_speed = plan.rows[0].sets_speed;
      set_efficiency(cell, p);
      set_without_network(cell, p);
    }
    return planned;
  }

 private:
  double number(const Cell& cell, const Node& node, const std::string& key, double otherwise) const {
    if (!given(node)) return otherwise;
    const std::string path = config_.path + "." + key;
    const Node* formula = formula_for(experiment_, cell, node, path);
    return formula ? evaluate(*formula, path, CellScope(cell)) : otherwise;
  }
  struct Bounds {
    double otherwise, least, most;  // the default, and the permitted values
  };
  double number_in(const Cell& cell, const Node& node, const std::string& key, const Bounds& b) const {
    const double value = number(cell, node, key, b.otherwise);
    if (!(value >= b.least && value <= b.most))
      throw UserError(str(to_string(node.mark), ": ", config_.path, ".", key, ": cell ", cell.id,
                          ": expected a number from ", b.least, " to ", b.most, ", got ", value));
    return value;
  }

  std::string machine(const Cell& cell) const { return experiment_.machine(filled(cell, config_.machine)); }

  plan::Request request_of(const Cell& cell) const {
    plan::Request r = experiment::request_of(cell, machine(cell));
    for (const Node& node : config_.overrides.items) r.compose.overrides.push_back(filled(cell, node.text));
    if (given(config_.ranks))
      r.ranks = {
          static_cast<int64_t>(number_in(cell, config_.ranks, "ranks", {1, 1, static_cast<double>(plan::kMostRanks)}))};
    placed(cell, [&] {
      if (!config_.collectives.empty()) r.algorithm = plan::algorithm_named(filled(cell, config_.collectives));
      if (!config_.types.empty()) r.law = plan::parse_law(filled(cell, config_.types));
    });
    if (given(config_.overlap)) r.overlap = number_in(cell, config_.overlap, "overlap", {1, 0, 1}) != 0;
    r.known = known_;
    r.spread = number_in(cell, config_.spread, "spread", {0, 0, 10});
    r.fill = number_in(cell, config_.fill, "fill", {1, 0.01, 1});
    if (given(config_.epoch_tokens))
      r.epoch_tokens = number_in(cell, config_.epoch_tokens, "epoch_tokens", {1, 1, 1e18});
    return r;
  }

  plan::Planner& planner_of(const Cell& cell) {
    const auto found = planners_.find(cell.id);
    if (found != planners_.end()) return found->second;
    const plan::Request request = request_of(cell);
    return placed(cell,
                  [&]() -> plan::Planner& { return planners_.emplace(cell.id, plan::Planner(request)).first->second; });
  }

  plan::Plan plan_at(const Cell& cell, std::optional<double> speed) {
    plan::Planner& planner = planner_of(cell);
    return placed(cell, [&] {
      plan::Plan plan = planner.rows(speed);
      if (plan.rows.size() != 1)
        throw UserError(str("its overrides make ", plan.rows.size(), " variants, and a cell is one"));
      return plan;
    });
  }
  // The row of a cell at the speed that the machine's file states.
  const plan::Row& unscaled(const Cell& cell) {
    const auto found = unscaled_.find(cell.id);
    return found != unscaled_.end() ? found->second
                                    : unscaled_.emplace(cell.id, plan_at(cell, 1).rows[0]).first->second;
  }
  // The plan of a cell at the speed that a known step of the machine sets.
  const plan::Plan& plan_of(const Cell& cell) {
    const auto found = plans_.find(cell.id);
    return found != plans_.end() ? found->second : plans_.emplace(cell.id, plan_at(cell, {})).first->second;
  }
  // Calls `work`; its errors get the place of the plan and the cell.
  template <class Work>
  std::invoke_result_t<Work> placed(const Cell& cell, const Work& work) const {
    try {
      return work();
    } catch (const UserError& error) {
      throw UserError(str(to_string(config_.mark), ": ", config_.path, ": cell ", cell.id, ": ", error.what()));
    }
  }

  const Cell& cell_named(const std::string& id, const std::string& where) const {
    std::vector<std::string> ids;
    for (const Cell& cell : cells_) {
      if (cell.id == id && !cell.types) return cell;
      ids.push_back(cell.id);
    }
    throw UserError(str(where, ": this scale has no cell '", id, "'", did_you_mean(id, ids)));
  }

  // The seconds of a step without communication.
  double compute_of(const Cell& cell) { return plan_of(cell).rows[0].speed_alone * unscaled(cell).time.compute_s; }

  void set_without_network(const Cell& cell, PlannedCell& p) {
    const double step_s = compute_of(cell), ratio = step_s / p.columns.at("step_s");
    for (const std::string& column : kFromStep)
      if (const auto found = p.columns.find(column); found != p.columns.end())
        p.without_network[column] = column == "tokens_per_s" ? found->second / ratio : found->second * ratio;
    if (const Cell* base = base_of(cell)) {
      const plan::Row& planned = plan_of(*base).rows[0];
      const double of_base = planned.step_tokens / compute_of(*base) / planned.ranks;
      p.without_network[kEfficiency] = p.without_network.at("tokens_per_s") / p.columns.at("ranks") / of_base;
    }
  }

  // The cell to which the efficiency of `cell` refers; null if the plan has no base.
  const Cell* base_of(const Cell& cell) const {
    if (!given(config_.base)) return nullptr;
    std::string id;
    static_cast<void>(chosen(experiment_, cell, config_.base, config_.path + ".base"));
    for (const auto& [axis, label] : cell.place) {
      const Node* value = config_.base.find(axis);
      id += (id.empty() ? "" : "-") + (value ? value->text : label);
    }
    return &cell_named(id, str(to_string(config_.base.mark), ": ", config_.path, ".base"));
  }

  void set_efficiency(const Cell& cell, PlannedCell& p) {
    const Cell* base = base_of(cell);
    if (!base) {
      p.columns.erase(kEfficiency);
      return;
    }
    const plan::Row& planned = plan_of(*base).rows[0];
    p.columns[kEfficiency] =
        p.columns.at("tokens_per_s") / p.columns.at("ranks") / (planned.tokens_s() / planned.ranks);
    p.base = base == &cell;
  }

  const Experiment& experiment_;
  const PlanConfig& config_;
  const std::vector<Cell>& cells_;
  std::shared_ptr<plan::KnownSpeeds> known_ = std::make_shared<plan::KnownSpeeds>();
  std::map<std::string, plan::Planner> planners_;
  std::map<std::string, plan::Row> unscaled_;
  std::map<std::string, plan::Plan> plans_;
};

// Refuses a column that a cell does not have.
void check_column(const Measure& m, const std::string& cell, const PlannedCell& planned) {
  if (planned.columns.contains(m.plan)) return;
  const std::string where = str(to_string(m.mark), ": measures.", m.id, ".plan: ");
  if (m.plan == kEfficiency)
    throw UserError(where + "efficiency needs `base` of the plan, the cell whose efficiency is 1");
  if (m.plan == "hours_per_epoch" || m.plan == "hours")
    throw UserError(str(where, "cell ", cell, " has no ", m.plan,
                        "; state `epoch_tokens` of the plan, because the corpus is not here"));
  if (m.plan == "price_per_epoch")
    throw UserError(str(where, "cell ", cell, " has no price; it needs `epoch_tokens`, and a machine with a price"));
  std::vector<std::string> known(kFromStep.begin(), kFromStep.end());
  known.emplace_back(kEfficiency);
  std::string all;
  for (const auto& [column, value] : planned.columns) known.push_back(column);
  throw UserError(
      str(where, "the planner has no column '", m.plan, "'", did_you_mean(m.plan, known), "; docs/json.md lists them"));
}

// The columns of the planner from which a measure is computed.
std::set<std::string> columns_behind(const Experiment& e, const Measure& m) {
  if (!m.plan.empty()) return {m.plan};
  std::set<std::string> columns;
  if (!given(m.value)) return columns;
  for (const std::string& name : names_in(m.value.text))
    if (const Measure* other = e.measure(name); other && other != &m) columns.merge(columns_behind(e, *other));
  return columns;
}

}  // namespace

const Node* formula_of(const Experiment& experiment, const Measure& measure, const Cell& cell) {
  if (measure.formula.kind == Node::Kind::null) return nullptr;
  return formula_for(experiment, cell, measure.formula, "measures." + measure.id + ".formula");
}

bool applies(const Experiment& experiment, const Measure& measure, const Cell& cell) {
  const bool of_types = measure.split == "types" || measure.split == "fit";
  if (of_types != cell.types || (measure.only_planned && !cell.planned)) return false;
  if (!cell.runs && origin_of(measure, cell) == Origin::formula && !formula_of(experiment, measure, cell)) return false;
  return chosen(experiment, cell, measure.only, "measures." + measure.id + ".only");
}

Origin origin_of(const Measure& measure, const Cell& cell) {
  if (cell.types) return Origin::measured;
  if (cell.planned && (measure.only_planned || (measure.can_be_planned && !cell.runs))) return Origin::planned;
  return cell.runs ? Origin::measured : Origin::formula;
}

bool lacks_time(const Measure& measure, const Cell& cell) {
  return measure.kind == "hardware" && cell.virtual_ranks && origin_of(measure, cell) == Origin::measured;
}

bool is_fixed(const Experiment& experiment, const Measure& measure, const PlannedCell& cell) {
  if (measure.plan == kEfficiency) return cell.base;
  if (!measure.plan.empty()) return cell.sets_speed && kFromStep.contains(measure.plan);
  if (!given(measure.value)) return false;
  const std::vector<std::string> names = names_in(measure.value.text);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const Measure* other = experiment.measure(name);
    return other && other != &measure && is_fixed(experiment, *other, cell);
  });
}

bool needs_memory(const Experiment& experiment, const Measure& measure) {
  const std::set<std::string> columns = columns_behind(experiment, measure);
  return std::any_of(columns.begin(), columns.end(), is_time);
}

std::string machines_of(const PlanConfig& plan, const std::vector<Cell>& cells) {
  std::set<std::string> machines;
  for (const Cell& cell : cells)
    if (!cell.types) machines.insert(filled(cell, plan.machine));
  return joined(machines);
}

std::map<std::string, PlannedCell> plan_cells(const Experiment& experiment, const Scale& scale,
                                              const std::vector<Cell>& cells) {
  const PlanConfig& config = plan_config(experiment, scale);
  std::vector<const Measure*> measures;
  for (const Measure& m : experiment.measures)
    if (!m.plan.empty()) measures.push_back(&m);
  if (!config.given || measures.empty()) return {};
  std::map<std::string, PlannedCell> planned = CellPlanner(experiment, config, cells).plan(measures);
  for (const Measure* m : measures)
    for (const Cell& cell : cells)
      if (applies(experiment, *m, cell) && origin_of(*m, cell) == Origin::planned)
        check_column(*m, cell.id, planned.at(cell.id));
  return planned;
}

namespace {

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
  plan::Request request = request_of(cell, machine);
  request.epoch_tokens = epoch_tokens;
  if (devices == Devices::cores_here) request.cores = cores_of(cell);
  try {
    plan::Planner planner(request);
    const plan::Plan plan = planner.rows(1);
    const plan::Row& row = plan.rows[0];
    if (!row.total_hours || !std::isfinite(*row.total_hours)) return {};
    if (devices == Devices::own || (devices == Devices::shared && !cell.virtual_ranks)) return row.total_hours;
    // A calibrated machine does not state its cores: it is as fast as one rank was.
    const plan::DeviceConfig& device = plan.machine.device;
    const bool here = devices == Devices::cores_here;
    const bool as_one = here && device.kind == "cpu" && device.cores == 0 && cell.virtual_ranks;
    const double at_once = as_one ? static_cast<double>(cores_of(cell)) : 1;
    return *row.total_hours / row.time.step_s() * row.in_turn_s / at_once;
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace

void require_machine(const Cell& cell, const std::string& machine) {
  bool swept = false;
  (void)plan::variants_of(request_of(cell, machine), swept);
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
    // With the speed that a known step sets.
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
  const Node& data = *cell.composed.find("data");
  const auto [found, fresh] = checks_.emplace(to_yaml(data), Check{});
  if (!fresh) return found->second;
  const DataCheck check = check_dataset(data);
  found->second.findings = check.findings;
  std::optional<int64_t> tokens = check.train_tokens;
  if (!tokens && check.findings.empty()) tokens = sampled_train_tokens(data);
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

}  // namespace lmx::app::experiment
