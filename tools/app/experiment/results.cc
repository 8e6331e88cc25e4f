#include "app/experiment/results.h"

#include <algorithm>
#include <cmath>

#include "app/print/words.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

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

// Adds the verdict that a measure equals its formula in all cells. The formula says what lmx is built to do, so that
// agreement is no evidence about the paper.
void judge_formula(const Measure& m, Results& results) {
  double worst = 0;
  size_t cells = 0;
  for (const Cell& cell : results.cells) {
    const std::optional<double> value = value_of(results, cell, m.id), formula = value_of(results, cell, m.id, true);
    if (!value || !formula || origin_of(m, cell) == Origin::formula) continue;
    worst = std::max(worst, distance(*value, *formula));
    ++cells;
  }
  if (cells == 0) return;
  const std::string limit = m.tolerance() > 0 ? "at most " + percent_text(m.tolerance()) : "0";
  const bool planned = all_planned(results, m);
  results.verdicts.push_back(
      {m.title + " is what its formula says, in every cell that " + (planned ? "is planned" : "ran"), m.kind, "",
       "off by at most " + percent_text(worst), limit, worst <= m.tolerance() ? kByConstruction : kRefuted,
       plural(cells, "cell")});
  results.verdicts.back().planned = planned;
}

// A number of the paper and what lmx has for it.
struct PaperNumber {
  std::string key;  // of Results::paper_tests
  std::vector<Sample> samples;
  double wanted;
  bool single;               // only one run shows a number that depends on chance
  std::string setting = {};  // the unknown setting that decides it
};

std::string key_of(const Measure& m, const std::string& row) {
  return m.id + "/" + row;
}

// Returns the numbers of the paper that can be compared: those of rows that have a number, and are not fixed by it.
std::vector<PaperNumber> paper_numbers(const Measure& m, const Results& r) {
  std::vector<PaperNumber> all;
  for (const Row& row : r.rows) {
    const auto wanted = parse_double(paper_text(row, m));
    std::vector<Sample> samples = samples_of(r, row, m);
    if (!wanted || samples.empty() || !outcome_of(m, r, row).empty() || fixed(r, row, m)) continue;
    const bool single = samples.size() == 1 && (m.kind == "quality" || m.kind == "hardware") &&
                        origin_of(m, row.first()) == Origin::measured;
    all.push_back(
        {key_of(m, row_of(r.experiment, row.first())), std::move(samples), *wanted, single, dependence(r, row)});
  }
  const auto types = r.by_cell.find("types");
  const Node* paper = m.paper.find("types");
  if (types != r.by_cell.end() && paper)
    if (const auto value = types->second.values.find(m.id); value != types->second.values.end())
      all.push_back({key_of(m, "types"), {{0, value->second}}, parse_double(paper->text).value_or(NAN), false});
  return all;
}

void add_paper_tests(const Measure& m, Results& r) {
  if (!is_comparable(m, r)) return;
  for (const PaperNumber& n : paper_numbers(m, r)) {
    if (n.single) continue;
    Estimate margin = estimate_of_mean(n.samples);
    margin.value = m.tolerance() - distance(margin.value, n.wanted);
    margin.error /= std::fabs(n.wanted);
    r.paper_tests[n.key] = test_of(margin);
  }
}

// The distances of a measure from the paper's numbers.
struct Distances {
  double worst = 0;
  size_t cells = 0, one_sided = 0;           // one_sided: without a number either here or in the paper, but not in both
  size_t refuted = 0, open = 0, single = 0;  // beyond the tolerance; not significantly so or within it; with one run
  size_t fixed = 0;                          // cells that agree because they set the speed of the planner
  size_t dependent = 0;                      // cells that an unknown setting decides
  std::string setting = {};                  // this setting
};

Distances distances_of(const Measure& m, const Results& results) {
  Distances all;
  for (const PaperNumber& n : paper_numbers(m, results)) {
    if (!n.setting.empty()) {
      ++all.dependent;
      all.setting = n.setting;
      continue;
    }
    const auto test = results.paper_tests.find(n.key);
    const Standing s = test == results.paper_tests.end() ? Standing::open : test->second.standing();
    all.refuted += s == Standing::fails;
    all.single += n.single;
    all.open += s == Standing::open && !n.single;
    all.worst = std::max(all.worst, distance(mean(n.samples), n.wanted));
    ++all.cells;
  }
  for (const Row& row : results.rows) {
    const std::string paper = paper_text(row, m), outcome = outcome_of(m, results, row);
    const bool number = paper != kDiverged && paper != kOutOfMemory;
    if (paper.empty() || (samples_of(results, row, m).empty() && outcome.empty())) continue;
    if (fixed(results, row, m)) {
      ++all.fixed;
    } else if (!number || !outcome.empty()) {
      all.one_sided += paper != outcome;
      ++all.cells;
    }
  }
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
  if (!comparable) {
    v.verdict = kNotComparable;
  } else if (d.cells == 0) {
    v.verdict = d.dependent > 0 ? "depends on " + d.setting : kNotMeasured;
  } else {
    v.measured = "off by at most " + percent_text(d.worst);
    v.expected = "at most " + percent_text(m.tolerance());
    v.reason = plural(d.cells, "cell");
    if (d.refuted > 0) v.reason += str(", ", d.refuted, " of them off by more than that");
    v.verdict = d.refuted + d.one_sided > 0 ? kRefuted : d.open + d.single > 0 ? kUndecided : kReproduced;
    if (d.one_sided > 0)
      v.reason += str(", ", d.one_sided, all_planned(results, m) ? " of them ran out of memory" : " of them diverged",
                      " here or in the paper, not in both");
    if (d.fixed > 0)
      v.reason += str("; ", d.fixed, d.fixed == 1 ? " more sets" : " more set", " the planner's speed or base, and ",
                      d.fixed == 1 ? "does" : "do", " not count");
    if (d.dependent > 0) v.reason += str("; ", d.dependent, " more depend on ", d.setting);
    if (d.open > 0)
      v.reason += str(", ", d.open, " of them not significant after correction for ",
                      plural(results.comparisons, "comparison"));
    if (d.single > 0) v.reason += str(", ", d.single, " of them of one run: spread not measured");
  }
  v.planned = all_planned(results, m);
  if (v.planned && v.verdict == kRefuted && d.refuted > 0)
    v.verdict = str(kPlannerMisses, " by ", percent_text(d.worst));
  results.verdicts.push_back(v);
}

// Judges the claims, and tests the paper's numbers, together: Holm's method needs all tests of the table.
void judge_checks(Results& r) {
  const ResultScope scope(r.experiment, r.cells, r.by_cell);
  std::vector<const Check*> checks;
  for (const Check& check : r.experiment.checks) {
    if (!check.judged_at(r.scale.id)) continue;
    checks.push_back(&check);
    r.verdicts.push_back(judge(check, scope));
  }
  for (const Measure& m : r.experiment.measures) add_paper_tests(m, r);
  std::vector<TTest*> tests;
  for (Verdict& v : r.verdicts)
    if (v.test) tests.push_back(&*v.test);
  for (auto& [key, test] : r.paper_tests) tests.push_back(&test);
  r.comparisons = adjust(tests);
  for (size_t i = 0; i < checks.size(); ++i) conclude(r.verdicts[i], *checks[i], r.comparisons);
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
    if (!parse_double(node.text) && node.text != kDiverged && node.text != kOutOfMemory)
      throw UserError(str(to_string(node.mark), ": measures.", m.id, ".paper.", key, ": expected a number, ", kDiverged,
                          " or ", kOutOfMemory));
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const bool other_scale = r.experiment.scales.size() > 1;
    if (other_scale && std::find(possible.begin(), possible.end(), key) != possible.end()) continue;
    if (!other_scale || !nearest(key, known).empty())
      throw UserError(str(to_string(node.mark), ": measures.", m.id, ".paper: there is no cell '", key, "'",
                          did_you_mean(key, known)));
  }
}

}  // namespace

std::optional<double> value_of(const Results& results, const Cell& cell, const std::string& measure, bool formula) {
  const auto found = results.by_cell.find(cell.id);
  if (found == results.by_cell.end()) return {};
  const auto& values = formula ? found->second.formulas : found->second.values;
  const auto value = values.find(measure);
  return value == values.end() ? std::nullopt : std::optional(value->second);
}

std::vector<Sample> samples_of(const Results& results, const Row& row, const Measure& measure, bool formula) {
  std::vector<Sample> samples;
  for (const Cell* cell : row.cells)
    if (const auto value = value_of(results, *cell, measure.id, formula)) samples.push_back({0, *value});
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
  const bool at_paper = results.scale.id == kPaper && (m.comparable == "paper" || m.comparable == "launched");
  return m.comparable == "always" || (at_paper && (launched || m.comparable == "paper"));
}

std::optional<TTest> paper_test(const Results& results, const Row& row, const Measure& measure) {
  const auto test = results.paper_tests.find(key_of(measure, row_of(results.experiment, row.first())));
  return test == results.paper_tests.end() ? std::nullopt : std::optional(test->second);
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
      const std::optional<double> paper = parse_double(paper_text(row, m));
      const std::vector<Sample> samples = samples_of(results, row, m);
      if (!paper || samples.empty() || origin_of(m, row.first()) != Origin::planned || fixed(results, row, m)) continue;
      if (!dependence(results, row).empty()) continue;
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

std::string dependence(const Results& r, const Row& row) {
  if (r.experiment.depends_on.kind == Node::Kind::null) return "";
  const Node* setting = formula_for(r.experiment, row.first(), r.experiment.depends_on, "depends_on");
  return setting ? setting->text : "";
}

// The keys of `paper` are a row's labels, such as "dense-24".
std::string paper_text(const Row& row, const Measure& measure) {
  const Node* node = measure.paper.find(joined(row.labels, "-"));
  return node ? node->text : "";
}

void check_formulas(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells) {
  const Results as_if{experiment, scale, cells, measure_nothing(experiment, cells), {}, make_rows(experiment, cells)};
  const ResultScope scope(experiment, cells, as_if.by_cell);
  for (const Check& check : experiment.checks)
    if (check.judged_at(scale.id)) static_cast<void>(compare(check, scope));
  for (const Row& row : as_if.rows) static_cast<void>(dependence(as_if, row));
  for (const Measure& m : experiment.measures) check_paper_cells(as_if, m);
  static_cast<void>(figure_svg(as_if, {}));
}

Results judge(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
              std::map<std::string, CellResult> by_cell, std::map<std::string, std::string> failed) {
  Results results{experiment, scale, cells, std::move(by_cell), std::move(failed), make_rows(experiment, cells)};
  judge_checks(results);
  for (const Measure& m : experiment.measures) {
    judge_formula(m, results);
    judge_paper(m, results);
  }
  std::for_each(results.verdicts.begin(), results.verdicts.end(), use_the_planners_words);
  return results;
}

}  // namespace lmx::app::experiment
