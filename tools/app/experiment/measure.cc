#include "app/experiment/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "app/print/words.h"
#include "app/records/records.h"
#include "app/report/step_times.h"
#include "app/sweep/journal.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

using Conditions = std::map<std::string, double>;

// Evaluates `where`: numbers, or formulas of the cell's axes and variables.
Conditions conditions_of(const Measure& m, const Cell& cell) {
  Conditions conditions;
  for (const auto& [key, node] : m.where.entries)
    conditions[key] = evaluate(node, "measures." + m.id + ".where." + key, CellScope(cell));
  return conditions;
}

bool fulfils(const RunRecord& record, const Conditions& conditions) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const auto& condition) {
    const auto& [key, wanted] = condition;
    return (key == "step" ? static_cast<double>(record.step) : record.at(key, NAN)) == wanted;
  });
}

// Returns the sum over the keys that match; nothing if none matches.
std::optional<double> sum_of_keys(const RunRecord& record, const std::string& pattern) {
  std::optional<double> sum;
  for (const auto& [key, value] : record.values)
    if (fits(pattern, key)) sum = sum.value_or(0) + value;
  return sum;
}

// The sum, mean, median, an extreme, the first or the last of the values.
double combined(const std::string& how, const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (how == "sum") return sum;
  if (how == "mean") return sum / static_cast<double>(values.size());
  if (how == "median") return median(values);
  if (how == "min") return *std::min_element(values.begin(), values.end());
  if (how == "max") return *std::max_element(values.begin(), values.end());
  return how == "last" ? values.back() : values.front();
}

// Simulates that the sub-batches of a step are distributed to `ranks` ranks in turn. Returns the total seconds of the
// slowest rank, of the quickest rank, or the mean. Returns nothing if there are fewer sub-batches than ranks, as at the
// end of an epoch.
std::optional<double> dealt(const RunRecord& record, const std::string& which, int64_t ranks) {
  std::vector<double> seconds;
  for (const Interval& i : intervals_of(record))
    if (!i.travels) seconds.push_back(i.end - i.begin);
  const auto n = static_cast<int64_t>(seconds.size());
  if (n < ranks) return std::nullopt;
  std::vector<double> sums(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i % ranks)] += seconds[static_cast<size_t>(i)];
  return combined(which == "slowest" ? "max" : which == "quickest" ? "min" : "mean", sums);
}

std::optional<double> value_of(const Measure& m, const RunRecord& record) {
  if (m.deal > 0) return dealt(record, m.key, m.deal);
  return m.key == "step" ? std::optional(static_cast<double>(record.step)) : sum_of_keys(record, m.key);
}

// The value of a step, and how many steps its records cover.
struct Point {
  double value = 0, steps = 1;
};

[[noreturn]] void fail_key(const Measure& m, const Cell& cell, const std::vector<RunRecord>& records) {
  std::set<std::string> keys;
  for (const RunRecord& r : records)
    if (r.split == m.split)
      for (const auto& [key, value] : r.values) keys.insert(key);
  const std::vector<std::string> known(keys.begin(), keys.end());
  throw UserError(str(to_string(m.mark), ": measures.", m.id, ": cell ", cell.id, ": no record of split ", m.split,
                      m.where.entries.empty() ? "" : " that fulfils its `where`", " has the key '", m.key, "'",
                      did_you_mean(m.key, known), known.empty() ? "; there are none" : "; they have " + joined(known)));
}

// UserError: a key that no record can have, with the nearest that one can have. Most keys of ranks, and those with `/`,
// are not known before a run.
void check_key(const Experiment& experiment, const Measure& m, const std::string& key) {
  const bool named = key.find_first_of("/*") != std::string::npos || key == "step";
  if (named || (m.split != "train" && m.split != "valid" && m.split != "test")) return;
  std::vector<std::string> known = sweep::record_keys(m.split);
  const auto& splits = experiment.evaluate;
  const bool evaluated = std::find(splits.begin(), splits.end(), m.split) != splits.end();
  if (evaluated)  // as the runner of the cells writes them
    known.insert(known.end(), {"ppl", "nll_nat", "nll_bit", "tokens", "compression_ratio", "word_ppl", "bleu",
                               "multi_bleu", "multi_bleu_split"});
  if (std::find(known.begin(), known.end(), key) != known.end()) return;
  throw UserError(str(to_string(m.mark), ": measures.", m.id, ": no record of split ", m.split, " has the key '", key,
                      "'", did_you_mean(key, known), "; they have ", joined(known),
                      m.split == "test" && !evaluated ? ", and more with `evaluate: [test]`" : ""));
}

void check_keys(const Experiment& experiment, const Measure& m) {
  if (!m.key.empty()) check_key(experiment, m, m.key);
  for (const auto& [key, condition] : m.where.entries) check_key(experiment, m, key);
}

// Returns one point per step, in order.
std::vector<Point> points_of(const Measure& m, const Conditions& where, const std::vector<RunRecord>& records) {
  std::vector<Point> points;
  std::vector<double> ranks, told;  // asynchronous workers make different numbers of steps
  int64_t step = -1, before = 0;
  const auto close = [&] {
    if (ranks.empty()) return;
    const double steps = combined(m.ranks == "first" ? "first" : "mean", told);
    points.push_back({combined(m.ranks, ranks), steps > 0 ? steps : static_cast<double>(step - before)});
    ranks.clear();
    told.clear();
    before = step;
  };
  for (const RunRecord& r : records) {
    if (r.split != m.split || !fulfils(r, where)) continue;
    if (r.step != step || m.split == "types") close();
    step = r.step;
    if (const auto value = value_of(m, r)) {
      ranks.push_back(*value);
      told.push_back(r.at("steps"));
    }
  }
  close();
  return points;
}

bool has_diverged(const std::vector<RunRecord>& records) {
  return std::any_of(records.begin(), records.end(),
                     [](const RunRecord& r) { return r.split == kOutcome && r.at(kDiverged) == 1; });
}

// UserError: a key that no record has; the message suggests the nearest.
double measured(const Measure& m, const Cell& cell, const std::vector<RunRecord>& records) {
  const std::vector<Point> points = points_of(m, conditions_of(m, cell), records);
  if (points.empty()) fail_key(m, cell, records);
  std::vector<double> values;
  double steps = 0;
  for (const Point& p : points) {
    values.push_back(p.value);
    steps += p.steps;
  }
  const double value = m.take == "per_step" ? combined("sum", values) / steps : combined(m.take, values);
  return value / m.divide;
}

// The names of one cell: its axes and variables, the measures that are known so far, and measures of other cells in
// brackets.
class MeasureScope final : public CellScope {
 public:
  MeasureScope(const Cell& cell, const CellResult& result, const Experiment& experiment, const ResultScope& others)
      : CellScope(cell), result_(result), experiment_(experiment), others_(others) {}
  double variable(const std::string& name) const override {
    const auto found = result_.values.find(name);
    if (found != result_.values.end()) return found->second;
    if (experiment_.measure(name))
      throw UserError(str("measure ", name, " is not known here: the cell lacks it, or it comes later in the file"));
    return CellScope::variable(name);
  }
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override {
    return others_.select(measure, selection, axis);
  }

 private:
  const CellResult& result_;
  const Experiment& experiment_;
  const ResultScope& others_;
};

// Takes the numbers in this order, because each kind may refer to the earlier ones, also of other cells: measures that
// are always planned, measured values, planned values of cells that do not run, formulas of expected values.
class Measuring {
 public:
  using Records = std::map<std::string, std::vector<RunRecord>>;
  using Planned = std::map<std::string, PlannedCell>;
  // Without `records` and `planned`, every measured or planned number is 1.
  Measuring(const Experiment& experiment, const std::vector<Cell>& cells, const Records* records,
            const Planned* planned)
      : experiment_(experiment),
        cells_(cells),
        records_(records),
        planned_(planned),
        others_(experiment, cells, results_) {
    for (const Cell& cell : cells)
      if (planned && planned->contains(cell.id)) results_[cell.id].planned = planned->at(cell.id);
    add_planned(true);
    for (const Cell& cell : cells)
      if (cell.runs && (!records || records->contains(cell.id))) measure(cell);
    add_planned(false);
    for (const Cell& cell : cells)
      if (!cell.runs || (results_.contains(cell.id) && results_.at(cell.id).done)) add_formulas(cell);
  }
  std::map<std::string, CellResult> take() { return std::move(results_); }

 private:
  // Measures are in the outer loop, so that a formula may refer to an earlier measure of any cell.
  void add_planned(bool always) {
    for (const Measure& m : experiment_.measures) {
      for (const Cell& cell : cells_) {
        if (m.only_planned != always || !applies(experiment_, m, cell) || origin_of(m, cell) != Origin::planned)
          continue;
        CellResult& result = results_[cell.id];
        if (result.planned.out_of_memory && needs_memory(experiment_, m)) continue;
        if (const auto value = planned_number(m, cell, result)) result.values[m.id] = *value;
      }
    }
  }

  std::optional<double> planned_number(const Measure& m, const Cell& cell, const CellResult& result) const {
    if (!m.plan.empty()) return planned_ ? result.planned.columns.at(m.plan) / m.divide : 1;
    try {
      return evaluate(m.value, "measures." + m.id + ".value", MeasureScope(cell, result, experiment_, others_));
    } catch (const UserError&) {
      if (!planned_) throw;
      return {};  // the formula is valid, so it refers to a cell that runs out of memory
    }
  }

  void measure(const Cell& cell) {
    CellResult& result = results_[cell.id];
    result.done = true;
    result.diverged = records_ && has_diverged(records_->at(cell.id));
    for (const Measure& m : experiment_.measures) {
      if (!applies(experiment_, m, cell) || origin_of(m, cell) != Origin::measured) continue;
      if ((result.diverged && m.split != kOutcome) || (records_ && lacks_time(m, cell))) continue;
      double value = 1;
      if (m.key.empty())
        value = evaluate(m.value, "measures." + m.id + ".value", MeasureScope(cell, result, experiment_, others_));
      else if (const Conditions where = conditions_of(m, cell); records_)
        value = measured(m, cell, records_->at(cell.id));
      result.values[m.id] = value;
    }
  }

  void add_formulas(const Cell& cell) {
    CellResult& result = results_[cell.id];
    for (const Measure& m : experiment_.measures) {
      const Node* formula = formula_of(experiment_, m, cell);
      if (!formula || !applies(experiment_, m, cell) || (result.diverged && m.split != kOutcome)) continue;
      try {
        result.formulas[m.id] =
            evaluate(*formula, "measures." + m.id + ".formula", MeasureScope(cell, result, experiment_, others_));
      } catch (const UserError&) {
        if (!records_) throw;
        continue;  // the formula was valid with all cells, so it refers to a cell that has not run
      }
      if (origin_of(m, cell) == Origin::formula) result.values[m.id] = result.formulas[m.id];
    }
  }

  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  const Records* records_;
  const Planned* planned_;
  std::map<std::string, CellResult> results_;
  ResultScope others_;
};

}  // namespace

std::map<std::string, CellResult> measure_cells(const Experiment& experiment, const std::vector<Cell>& cells,
                                                const std::map<std::string, std::vector<RunRecord>>& records,
                                                const std::map<std::string, PlannedCell>& planned) {
  return Measuring(experiment, cells, &records, &planned).take();
}

std::map<std::string, CellResult> measure_nothing(const Experiment& experiment, const std::vector<Cell>& cells) {
  for (const Measure& m : experiment.measures) check_keys(experiment, m);
  return Measuring(experiment, cells, nullptr, nullptr).take();
}

double ResultScope::variable(const std::string& name) const {
  if (experiment_.measure(name)) return mean(select(name, {}, ""));
  std::set<double> values;
  for (const Cell& cell : cells_)
    if (const auto found = cell.variables.find(name); found != cell.variables.end()) values.insert(found->second);
  if (values.size() == 1) return *values.begin();
  if (values.size() > 1) throw UserError(str("'", name, "' is not the same in all cells"));
  std::vector<std::string> known;
  for (const Measure& m : experiment_.measures) known.push_back(m.id);
  for (const Cell& cell : cells_)
    for (const auto& [variable_name, value] : cell.variables) known.push_back(variable_name);
  throw UserError(str("unknown name '", name, "'", did_you_mean(name, known)));
}

// Each word of a selection is "axis=value", a value that exactly one axis has, or a cell's id.
std::vector<const Cell*> ResultScope::choose(const std::string& measure,
                                             const std::vector<std::string>& selection) const {
  std::vector<const Cell*> cells;
  for (const Cell& cell : cells_)
    if (applies(experiment_, *experiment_.measure(measure), cell)) cells.push_back(&cell);
  for (const std::string& word : selection) {
    const size_t equals = word.find('=');
    const std::string label = equals == std::string::npos ? word : word.substr(equals + 1);
    std::vector<std::string> axes, labels;
    for (const Axis& axis : experiment_.axes) {
      for (const AxisValue& value : axis.values) {
        labels.push_back(value.label);
        if (value.label == label && (equals == std::string::npos || axis.id == word.substr(0, equals)))
          axes.push_back(axis.id);
      }
    }
    const bool id = std::any_of(cells_.begin(), cells_.end(), [&](const Cell& c) { return c.id == word; });
    if (axes.empty() && !id) throw UserError(str("no axis has the value '", word, "'", did_you_mean(word, labels)));
    if (axes.size() > 1)
      throw UserError(
          str("'", word, "' is a value of several axes; write ", axes[0], "=", word, " or ", axes[1], "=", word));
    std::erase_if(cells, [&](const Cell* c) {
      if (axes.empty()) return c->id != word;
      const std::string* own = c->value(axes[0]);
      return !own || *own != label;
    });
  }
  for (const Origin origin : {Origin::measured, Origin::planned}) {
    const auto has = [&](const Cell* c) { return origin_of(*experiment_.measure(measure), *c) == origin; };
    if (std::none_of(cells.begin(), cells.end(), has)) continue;
    std::erase_if(cells, [&](const Cell* c) { return !has(c); });
    break;
  }
  return cells;
}

void ResultScope::check_closed(const std::string& measure, const std::vector<const Cell*>& cells,
                               const std::string& axis) const {
  if (axis == "*") return;
  for (const Axis& a : experiment_.axes) {
    if (a.id == axis || experiment_.averages(a.id)) continue;
    std::set<std::string> open;
    for (const Cell* c : cells)
      if (const std::string* label = c->value(a.id)) open.insert(*label);
    if (open.size() > 1)
      throw UserError(str(measure, "[...] leaves axis ", a.id, " open; choose one of ", joined(open)));
  }
}

std::vector<Sample> ResultScope::select(const std::string& measure, const std::vector<std::string>& selection,
                                        const std::string& axis) const {
  if (!experiment_.measure(measure)) {
    std::vector<std::string> known;
    for (const Measure& m : experiment_.measures) known.push_back(m.id);
    throw UserError(str("unknown measure '", measure, "'", did_you_mean(measure, known)));
  }
  const bool by_axis = !axis.empty() && axis != "*";
  if (by_axis && !experiment_.axis(axis)) throw UserError(str("there is no axis '", axis, "'"));
  const std::vector<const Cell*> cells = choose(measure, selection);
  check_closed(measure, cells, axis);
  const std::vector<Use> rows = rows_of(*experiment_.measure(measure), cells);
  if (uses_) uses_->insert(uses_->end(), rows.begin(), rows.end());
  std::vector<Sample> samples;
  for (const Cell* cell : cells) {
    if (left_out_.contains(cell->id) && std::any_of(rows.begin(), rows.end(), [&](const Use& row) {
          return row.cells.size() > 1 && row.row == row_of(experiment_, *cell);
        }))
      continue;
    const auto found = results_.find(cell->id);
    if (found != results_.end() && found->second.diverged && !found->second.values.contains(measure))
      throw UserError(str("cell ", cell->id, " diverged"));
    if (found != results_.end() && found->second.planned.out_of_memory && !found->second.values.contains(measure))
      throw UserError(str("cell ", cell->id, " runs out of memory"));
    if (found == results_.end() || !found->second.values.contains(measure))
      throw UserError(str("cell ", cell->id, cell->runs ? " has not run" : " does not run; its formula comes later"));
    Sample sample{0, found->second.values.at(measure)};
    if (by_axis) sample.x = CellScope(*cell).variable(axis);
    samples.push_back(sample);
  }
  return samples;
}

ResultScope ResultScope::recording(std::vector<Use>& uses) const {
  ResultScope scope = *this;
  scope.uses_ = &uses;
  return scope;
}

ResultScope ResultScope::without(const std::set<std::string>& cells) const {
  ResultScope scope = *this;
  scope.left_out_ = cells;
  return scope;
}

// Returns one entry for each row, with its cells that run; and one for a planned row.
std::vector<ResultScope::Use> ResultScope::rows_of(const Measure& measure,
                                                   const std::vector<const Cell*>& cells) const {
  const bool chance = measure.kind == "quality" || measure.kind == "hardware";
  std::vector<Use> rows;
  for (const Cell* cell : cells) {
    const Origin origin = origin_of(measure, *cell);
    if (origin == Origin::formula || cell->types) continue;
    const std::string id = row_of(experiment_, *cell);
    if (origin == Origin::planned) {
      rows.push_back({id, {}, {}, false, true});
      continue;
    }
    auto found = std::find_if(rows.begin(), rows.end(), [&](const Use& row) { return row.row == id; });
    if (found == rows.end()) found = rows.insert(rows.end(), {id, {}, {}, chance, false});
    found->cells.push_back(cell->id);
    found->places.push_back(row_of(experiment_, *cell, true));
  }
  return rows;
}

std::string row_of(const Experiment& experiment, const Cell& cell, bool averaged) {
  std::string id;
  for (const auto& [axis, label] : cell.place)
    if (experiment.averages(axis) == averaged) id += (id.empty() ? "" : "-") + label;
  return id;
}

}  // namespace lmx::app::experiment
