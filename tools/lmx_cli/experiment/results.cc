#include "results.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::Node;
using lmx::str;

constexpr int64_t kDigits = 4;

bool given(const Node& node) {
  return node.kind != Node::Kind::null;
}

std::string percent(double fraction) {
  return number_text(100 * fraction, 3) + " %";
}

double distance(double value, double expected) {
  if (value == expected) return 0;
  return expected == 0 ? INFINITY : std::fabs(value / expected - 1);
}

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

// A check's formulas over the results, or why they cannot be had.
class Judge {
 public:
  explicit Judge(const ResultScope& scope) : scope_(scope) {}

  Verdict compare(const Check& check) const {
    Verdict v{check.claim, check.kind, check.paper, "", "", "", check.note};
    if (given(check.ascending)) {
      judge_order(check, v);
    } else if (given(check.value)) {
      judge_value(check, v);
    }
    return v;
  }

  Verdict judge(const Check& check) const {
    Verdict v{check.claim, check.kind, check.paper, "", "", "", check.note};
    try {
      v = compare(check);
    } catch (const lmx::UserError& e) {
      v.verdict = "not measured";
      v.reason = e.what();
    }
    if (!check.incomparable.empty() || (v.verdict.empty() && check.kind == "hardware")) {
      v.verdict = "not comparable";
      v.reason = check.incomparable.empty() ? "numbers of hardware are reported only" : check.incomparable;
    }
    return v;
  }

 private:
  void judge_value(const Check& check, Verdict& v) const {
    const double value = evaluate(check.value, check.path + ".value", scope_);
    v.measured = number_text(value, kDigits);
    bool good = std::isfinite(value), judged = false;
    const auto expect = [&](const std::string& text, bool holds) {
      v.expected += (v.expected.empty() ? "" : ", ") + text;
      good = good && holds;
      judged = true;
    };
    if (given(check.expect)) {
      const double wanted = evaluate(check.expect, check.path + ".expect", scope_);
      const double off = distance(value, wanted);
      expect(number_text(wanted, kDigits) + (check.tolerance() > 0 ? " ± " + percent(check.tolerance()) : ""),
             off <= check.tolerance());
      v.measured += str(" (", value >= wanted ? "+" : "-", percent(off), ")");
    }
    if (given(check.at_least)) {
      const double bound = evaluate(check.at_least, check.path + ".at_least", scope_);
      expect("≥ " + number_text(bound, kDigits), value >= bound);
    }
    if (given(check.at_most)) {
      const double bound = evaluate(check.at_most, check.path + ".at_most", scope_);
      expect("≤ " + number_text(bound, kDigits), value <= bound);
    }
    if (judged && check.kind != "hardware") v.verdict = good ? "reproduced" : "refuted";
  }

  void judge_order(const Check& check, Verdict& v) const {
    double last = -INFINITY;
    bool good = true;
    for (size_t i = 0; i < check.ascending.items.size(); ++i) {
      const double value = evaluate(check.ascending.items[i], str(check.path, ".ascending.", i), scope_);
      v.measured += (i ? ", " : "") + number_text(value, kDigits);
      good = good && value > last;
      last = value;
    }
    v.expected = "ascending";
    v.verdict = good ? "reproduced" : "refuted";
  }

  const ResultScope& scope_;
};

// "= its formula in all cells".
void judge_formula(const Measure& m, Results& results) {
  double worst = 0;
  size_t cells = 0;
  for (const Cell& cell : results.cells) {
    const auto found = results.by_cell.find(cell.id);
    if (!cell.runs || found == results.by_cell.end() || !found->second.formulas.contains(m.id)) continue;
    worst = std::max(worst, distance(found->second.values.at(m.id), found->second.formulas.at(m.id)));
    ++cells;
  }
  if (cells == 0) return;
  const std::string limit = m.tolerance() > 0 ? "at most " + percent(m.tolerance()) : "0";
  results.verdicts.push_back({m.title + " is what its formula says, in every cell that ran", m.kind, "",
                              "off by at most " + percent(worst), limit,
                              worst <= m.tolerance() ? "reproduced" : "refuted", str(cells, cells == 1 ? " cell" : " cells")});
}

// What a measure is off the paper's numbers.
struct Distances {
  double worst = 0;
  size_t cells = 0, one_sided = 0;  // one_sided: cells that diverged here and not in the paper, or the other way round
  void compare(double value, const std::string& paper) {
    worst = std::max(worst, distance(value, lmx::parse_double(paper).value_or(NAN)));
    ++cells;
  }
};

Distances distances_of(const Measure& m, const Results& results) {
  Distances all;
  for (const Row& row : results.rows) {
    const std::string paper = paper_text(row, m);
    const std::vector<Sample> samples = samples_of(results, row, m);
    const bool diverged = diverged_runs(results, row) > 0;
    if (paper.empty() || (samples.empty() && !diverged)) continue;
    if (diverged != (paper == kDiverged)) {
      ++all.one_sided;
      ++all.cells;
    } else if (diverged) {
      ++all.cells;
    } else {
      all.compare(mean(samples), paper);
    }
  }
  if (const auto types = results.by_cell.find("types"); types != results.by_cell.end())
    if (const auto value = types->second.values.find(m.id); value != types->second.values.end())
      if (const Node* paper = m.paper.find("types")) all.compare(value->second, paper->text);
  return all;
}

void judge_paper(const Measure& m, Results& results) {
  if (!given(m.paper)) return;
  Verdict v{m.title + ": the paper's numbers, cell by cell", m.kind, "", "", "", "", m.reason};
  const bool comparable =
      m.kind != "hardware" && (m.comparable == "always" || (m.comparable == "paper" && results.scale.id == "paper"));
  const auto [worst, cells, one_sided] = distances_of(m, results);
  if (!comparable || cells == 0) {
    v.verdict = cells == 0 && comparable ? "not measured" : "not comparable";
  } else {
    v.measured = "off by at most " + percent(worst);
    v.expected = "at most " + percent(m.tolerance());
    v.verdict = worst <= m.tolerance() && one_sided == 0 ? "reproduced" : "refuted";
    v.reason = str(cells, cells == 1 ? " cell" : " cells");
    if (one_sided > 0) v.reason += str(", ", one_sided, " of them diverged here or in the paper, not in both");
  }
  results.verdicts.push_back(v);
}

std::string row_id(const Row& row) {
  std::string id;
  for (const std::string& label : row.labels) id += (id.empty() ? "" : "-") + label;
  return id;
}

// Ids of the rows that any choice of cells can have.
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

// At another scale other cells may run, so a key is any combination of the axes' values.
void check_paper_cells(const Results& r, const Measure& m) {
  std::vector<std::string> known{"types"}, labels;
  for (const Row& row : r.rows) known.push_back(row_id(row));
  const std::vector<std::string> possible = possible_rows(r.experiment);
  for (const auto& [key, node] : m.paper.entries) {
    if (!lmx::parse_double(node.text) && node.text != kDiverged)
      throw lmx::UserError(
          str(to_string(node.mark), ": measures.", m.id, ".paper.", key, ": expected a number, or ", kDiverged));
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

// Keys of `paper` are a row's labels, "dense-24".
std::string paper_text(const Row& row, const Measure& measure) {
  const Node* node = measure.paper.find(row_id(row));
  return node ? node->text : "";
}

void check_formulas(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells) {
  const Results as_if{experiment, scale, cells, measure_nothing(experiment, cells), {}, make_rows(experiment, cells), {}};
  const ResultScope scope(experiment, cells, as_if.by_cell);
  for (const Check& check : experiment.checks)
    if (check.judged_at(scale.id)) static_cast<void>(Judge(scope).compare(check));
  for (const Measure& m : experiment.measures) check_paper_cells(as_if, m);
  static_cast<void>(figure_svg(as_if, {}));
}

Results judge(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
              std::map<std::string, CellResult> by_cell, std::map<std::string, std::string> failed) {
  Results results{experiment, scale, cells, std::move(by_cell), std::move(failed), make_rows(experiment, cells), {}};
  const ResultScope scope(experiment, cells, results.by_cell);
  const Judge judge_of(scope);
  for (const Check& check : experiment.checks)
    if (check.judged_at(scale.id)) results.verdicts.push_back(judge_of.judge(check));
  for (const Measure& m : experiment.measures) {
    judge_formula(m, results);
    judge_paper(m, results);
  }
  return results;
}

}  // namespace lmx_cli::experiments
