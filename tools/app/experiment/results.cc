#include "app/experiment/results.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::Node;
using lmx::str;

std::vector<Row> make_rows(const Experiment& e, const std::vector<Cell>& cells) {
  std::vector<Row> rows;
  for (const Cell& cell : cells) {
    if (cell.types) continue;
    std::vector<std::string> labels;
    for (const auto& [axis, label] : cell.place)
      if (!e.averages(axis)) labels.push_back(label);
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.labels == labels; });
    if (found == rows.end())
      rows.push_back({{&cell}, labels});
    else
      found->cells.push_back(&cell);
  }
  return rows;
}

// Adds the verdict that a measure equals its formula in all cells.
void judge_formula(const Measure& m, Results& results) {
  double worst = 0;
  size_t cells = 0;
  for (const Cell& cell : results.cells) {
    const auto found = results.by_cell.find(cell.id);
    if (found == results.by_cell.end() || !found->second.formulas.contains(m.id) ||
        !found->second.values.contains(m.id) || origin_of(m, cell) == Origin::formula)
      continue;
    worst = std::max(worst, distance(found->second.values.at(m.id), found->second.formulas.at(m.id)));
    ++cells;
  }
  if (cells == 0) return;
  const std::string limit = m.tolerance() > 0 ? "at most " + percent_text(m.tolerance()) : "0";
  const bool planned = all_planned(results, m);
  results.verdicts.push_back(
      {m.title + " is what its formula says, in every cell that " + (planned ? "is planned" : "ran"), m.kind, "",
       "off by at most " + percent_text(worst), limit, worst <= m.tolerance() ? kReproduced : kRefuted,
       str(cells, cells == 1 ? " cell" : " cells")});
  results.verdicts.back().planned = planned;
}

// The distances of a measure from the paper's numbers.
struct Distances {
  double worst = 0;
  size_t cells = 0, one_sided = 0;           // one_sided: without a number either here or in the paper, but not in both
  size_t refuted = 0, open = 0, single = 0;  // beyond the tolerance; within two standard errors of it; with one run
  size_t fixed = 0;                          // cells that agree because they set the speed of the planner
  void compare(const Measure& m, const std::vector<Sample>& samples, const std::string& paper, bool planned = false) {
    const double wanted = lmx::parse_double(paper).value_or(NAN), off = distance(mean(samples), wanted);
    const Standing s = standing_to_paper(m, samples, wanted);
    refuted += s == Standing::fails;
    open += s == Standing::open;
    single += samples.size() == 1 && m.kind == "quality" && !planned;
    worst = std::max(worst, off);
    ++cells;
  }
};

Distances distances_of(const Measure& m, const Results& results) {
  Distances all;
  for (const Row& row : results.rows) {
    const std::string paper = paper_text(row, m);
    const std::vector<Sample> samples = samples_of(results, row, m);
    const std::string outcome = outcome_of(m, results, row);
    if (paper.empty() || (samples.empty() && outcome.empty())) continue;
    const bool number = paper != kDiverged && paper != kOutOfMemory;
    if (fixed(results, row, m)) {
      ++all.fixed;
    } else if (number && outcome.empty()) {
      all.compare(m, samples, paper, origin_of(m, row.first()) == Origin::planned);
    } else {
      all.one_sided += paper != outcome;
      ++all.cells;
    }
  }
  if (const auto types = results.by_cell.find("types"); types != results.by_cell.end())
    if (const auto value = types->second.values.find(m.id); value != types->second.values.end())
      if (const Node* paper = m.paper.find("types")) all.compare(m, {{0, value->second}}, paper->text);
  return all;
}

void use_the_planners_words(Verdict& v) {
  if (!v.planned) return;
  if (v.verdict == kReproduced) v.verdict = kPlannerAgrees;
  if (v.verdict == kRefuted) v.verdict = kPlannerMisses;
}

void judge_paper(const Measure& m, Results& results) {
  if (!given(m.paper)) return;
  Verdict v{m.title + ": the paper's numbers, cell by cell", m.kind, "", "", "", "", m.reason};
  const bool comparable = is_comparable(m, results);
  const Distances d = distances_of(m, results);
  if (!comparable || d.cells == 0) {
    v.verdict = d.cells == 0 && comparable ? kNotMeasured : kNotComparable;
  } else {
    v.measured = "off by at most " + percent_text(d.worst);
    v.expected = "at most " + percent_text(m.tolerance());
    v.reason = str(d.cells, d.cells == 1 ? " cell" : " cells");
    if (d.refuted > 0) v.reason += str(", ", d.refuted, " of them off by more than that");
    v.verdict = d.refuted + d.one_sided > 0 ? kRefuted : d.open + d.single > 0 ? kUndecided : kReproduced;
    if (d.one_sided > 0)
      v.reason += str(", ", d.one_sided, all_planned(results, m) ? " of them ran out of memory" : " of them diverged",
                      " here or in the paper, not in both");
    if (d.fixed > 0)
      v.reason += str("; ", d.fixed, d.fixed == 1 ? " more sets" : " more set", " the planner's speed or base, and ",
                      d.fixed == 1 ? "does" : "do", " not count");
    if (d.open > 0) v.reason += str(", ", d.open, " of them less than two standard errors from what is allowed");
    if (d.single > 0) v.reason += str(", ", d.single, " of them of one run: spread not measured");
  }
  v.planned = all_planned(results, m);
  if (v.planned && v.verdict == kRefuted && d.refuted > 0)
    v.verdict = str(kPlannerMisses, " by ", percent_text(d.worst));
  results.verdicts.push_back(v);
}

// Returns the ids of the rows that any choice of cells can produce.
std::vector<std::string> possible_rows(const Experiment& e) {
  std::vector<std::string> ids{""};
  for (const Axis& axis : e.axes) {
    if (e.averages(axis.id)) continue;
    std::vector<std::string> longer;
    for (const std::string& id : ids)
      for (const AxisValue& value : axis.values) longer.push_back(id.empty() ? value.label : id + "-" + value.label);
    ids = std::move(longer);
  }
  return ids;
}

// Other cells may run at another scale, so a key may be any combination of the axes' values.
void check_paper_cells(const Results& r, const Measure& m) {
  std::vector<std::string> known{"types"}, labels;
  for (const Row& row : r.rows) known.push_back(row_of(r.experiment, row.first()));
  const std::vector<std::string> possible = possible_rows(r.experiment);
  for (const auto& [key, node] : m.paper.entries) {
    if (!lmx::parse_double(node.text) && node.text != kDiverged && node.text != kOutOfMemory)
      throw lmx::UserError(str(to_string(node.mark), ": measures.", m.id, ".paper.", key, ": expected a number, ",
                               kDiverged, " or ", kOutOfMemory));
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const bool other_scale = r.experiment.scales.size() > 1;
    if (other_scale && std::find(possible.begin(), possible.end(), key) != possible.end()) continue;
    if (!other_scale || !lmx::nearest(key, known).empty())
      throw lmx::UserError(str(to_string(node.mark), ": measures.", m.id, ".paper: there is no cell '", key, "'",
                               lmx::did_you_mean(key, known)));
  }
}

}  // namespace

std::vector<Sample> samples_of(const Results& results, const Row& row, const Measure& measure, bool formula) {
  std::vector<Sample> samples;
  for (const Cell* cell : row.cells) {
    const auto found = results.by_cell.find(cell->id);
    if (found == results.by_cell.end()) continue;
    const auto& values = formula ? found->second.formulas : found->second.values;
    if (const auto value = values.find(measure.id); value != values.end()) samples.push_back({0, value->second});
  }
  return samples;
}

size_t diverged_runs(const Results& results, const Row& row) {
  return static_cast<size_t>(std::count_if(row.cells.begin(), row.cells.end(), [&](const Cell* cell) {
    const auto found = results.by_cell.find(cell->id);
    return found != results.by_cell.end() && found->second.diverged;
  }));
}

std::string outcome_of(const Measure& m, const Results& results, const Row& row) {
  if (out_of_memory(results, row, m)) return kOutOfMemory;
  return diverged_runs(results, row) > 0 && origin_of(m, row.first()) == Origin::measured ? kDiverged : "";
}

bool is_comparable(const Measure& m, const Results& results) {
  const bool launched = !results.cells.empty() && results.cells[0].launched;
  if (m.kind == "hardware" && !launched) return false;
  const bool at_paper = results.scale.id == "paper" && (m.comparable == "paper" || m.comparable == "launched");
  return m.comparable == "always" || (at_paper && (launched || m.comparable == "paper"));
}

Standing standing_to_paper(const Measure& measure, const std::vector<Sample>& samples, double paper) {
  const double margin = measure.tolerance() - distance(mean(samples), paper);
  return standing(margin, error_of_mean(samples) / std::fabs(paper));
}

bool out_of_memory(const Results& results, const Row& row, const Measure& measure) {
  const auto found = results.by_cell.find(row.first().id);
  return found != results.by_cell.end() && found->second.planned.out_of_memory &&
         needs_memory(results.experiment, measure) && applies(results.experiment, measure, row.first()) &&
         origin_of(measure, row.first()) == Origin::planned;
}

bool fixed(const Results& results, const Row& row, const Measure& measure) {
  const auto found = results.by_cell.find(row.first().id);
  return found != results.by_cell.end() && origin_of(measure, row.first()) == Origin::planned &&
         is_fixed(results.experiment, measure, found->second.planned);
}

bool all_planned(const Results& results, const Measure& measure) {
  bool planned = false;
  for (const Row& row : results.rows) {
    if (samples_of(results, row, measure).empty()) continue;
    if (origin_of(measure, row.first()) != Origin::planned) return false;
    planned = true;
  }
  return planned;
}

Explained explained_times(const Results& results) {
  Explained e;
  for (const Measure& m : results.experiment.measures) {
    if (m.plan.empty() || !is_comparable(m, results)) continue;
    for (const Row& row : results.rows) {
      const std::optional<double> paper = lmx::parse_double(paper_text(row, m));
      const std::vector<Sample> samples = samples_of(results, row, m);
      if (!paper || samples.empty() || origin_of(m, row.first()) != Origin::planned || fixed(results, row, m)) continue;
      const PlannedCell& planned = results.by_cell.at(row.first().id).planned;
      const auto other = planned.without_network.find(m.plan);
      if (other == planned.without_network.end()) continue;
      ++e.cells;
      e.by_planner += distance(mean(samples), *paper) <= m.tolerance();
      e.without_network += distance(other->second, *paper) <= m.tolerance();
    }
  }
  return e;
}

// The keys of `paper` are a row's labels, such as "dense-24".
std::string paper_text(const Row& row, const Measure& measure) {
  std::string id;
  for (const std::string& label : row.labels) id += (id.empty() ? "" : "-") + label;
  const Node* node = measure.paper.find(id);
  return node ? node->text : "";
}

void check_formulas(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells) {
  const Results as_if{experiment, scale, cells, measure_nothing(experiment, cells), {}, make_rows(experiment, cells),
                      {}};
  const ResultScope scope(experiment, cells, as_if.by_cell);
  for (const Check& check : experiment.checks)
    if (check.judged_at(scale.id)) static_cast<void>(compare(check, scope));
  for (const Measure& m : experiment.measures) check_paper_cells(as_if, m);
  static_cast<void>(figure_svg(as_if, {}));
}

Results judge(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
              std::map<std::string, CellResult> by_cell, std::map<std::string, std::string> failed) {
  Results results{experiment, scale, cells, std::move(by_cell), std::move(failed), make_rows(experiment, cells), {}};
  const ResultScope scope(experiment, cells, results.by_cell);
  for (const Check& check : experiment.checks)
    if (check.judged_at(scale.id)) results.verdicts.push_back(judge(check, scope));
  for (const Measure& m : experiment.measures) {
    judge_formula(m, results);
    judge_paper(m, results);
  }
  std::for_each(results.verdicts.begin(), results.verdicts.end(), use_the_planners_words);
  return results;
}

}  // namespace lmx_cli::experiments
