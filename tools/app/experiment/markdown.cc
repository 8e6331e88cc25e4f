// table.md: the cells, the paper's numbers, the verdicts.
#include <algorithm>

#include "app/experiment/results.h"
#include "app/print/markdown.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::Node;
using lmx::str;
using Lines = std::vector<std::vector<std::string>>;

std::string heading(const Measure& m) {
  return m.unit.empty() ? m.title : m.title + " (" + m.unit + ")";
}

std::string sample_text(const std::vector<Sample>& samples, int64_t digits) {
  if (samples.empty()) return "";
  std::string text = number_text(mean(samples), digits);
  if (spread(samples) > 0) text += " ± " + number_text(spread(samples), std::max<int64_t>(2, digits - 2));
  return text;
}

// The columns of a measure: measured, and also formula and paper if any row has one.
struct Column {
  const Measure* measure;
  bool formula = false, paper = false;
};

std::vector<Column> columns_of(const Results& r) {
  std::vector<Column> columns;
  for (const Measure& m : r.experiment.measures) {
    Column column{&m};
    bool any = false;
    for (const Row& row : r.rows) {
      any = any || !samples_of(r, row, m).empty();
      column.formula = column.formula || !samples_of(r, row, m, true).empty();
      column.paper = column.paper || !paper_text(row, m).empty();
    }
    if (any || column.paper) columns.push_back(column);
  }
  return columns;
}

bool any_failed(const Results& r, const Row& row) {
  return std::any_of(row.cells.begin(), row.cells.end(), [&](const Cell* c) { return r.failed.contains(c->id); });
}

std::string row_text(const Results& r, const Row& row, const Measure& m) {
  const std::vector<Sample> samples = samples_of(r, row, m);
  const size_t diverged = m.split == kOutcome ? 0 : diverged_runs(r, row);
  if (samples.empty() && applies(r.experiment, m, row.first()))
    return any_failed(r, row) ? "failed" : diverged > 0 ? kDiverged : "not run";
  std::string text = sample_text(samples, m.digits);
  if (!row.first().runs && !text.empty()) text = "*" + text + "*";
  size_t runs = 0;
  for (const Cell* cell : row.cells) runs += cell->runs;
  if (!samples.empty() && samples.size() < runs)
    text += str(" (", samples.size(), " of ", runs, " runs", diverged > 0 ? str(", ", diverged, " diverged") : "", ")");
  return text;
}

std::string cells_table(const Results& r) {
  const std::vector<Column> columns = columns_of(r);
  Lines lines(1);
  for (const Axis& axis : r.experiment.axes)
    if (!r.experiment.averages(axis.id)) lines[0].push_back(axis.id);
  for (const Column& c : columns) {
    lines[0].push_back(heading(*c.measure));
    if (c.formula) lines[0].push_back("formula");
    if (c.paper) lines[0].push_back("paper");
  }
  for (const Row& row : r.rows) {
    std::vector<std::string> line = row.labels;
    for (const Column& c : columns) {
      line.push_back(row_text(r, row, *c.measure));
      if (c.formula) line.push_back(sample_text(samples_of(r, row, *c.measure, true), c.measure->digits));
      if (c.paper) line.push_back(paper_text(row, *c.measure));
    }
    lines.push_back(std::move(line));
  }
  return lines.size() > 1 ? markdown_table(lines, " --- ") + "\n" : "";
}

std::string types_table(const Results& r) {
  const auto found = r.by_cell.find("types");
  if (found == r.by_cell.end()) return "";
  Lines lines{{"of the text", "measured", "paper"}};
  for (const Measure& m : r.experiment.measures) {
    const auto value = found->second.values.find(m.id);
    if (value == found->second.values.end()) continue;
    const Node* paper = m.paper.find("types");
    lines.push_back({heading(m), number_text(value->second, m.digits), paper ? paper->text : ""});
  }
  return lines.size() > 1 ? markdown_table(lines, " --- ") + "\n" : "";
}

std::string verdict_table(const Results& r) {
  Lines lines{{"claim", "class", "paper", "expected", "measured", "verdict"}};
  for (const Verdict& v : r.verdicts)
    lines.push_back({v.claim, v.kind, v.paper, v.expected, v.measured,
                     "**" + v.verdict + "**" + (v.reason.empty() ? "" : ": " + v.reason)});
  if (lines.size() == 1) return "";
  const bool errors = std::any_of(r.verdicts.begin(), r.verdicts.end(), [](const Verdict& v) {
    return std::any_of(v.estimates.begin(), v.estimates.end(), [](const Estimate& e) { return e.error > 0; });
  });
  return markdown_table(lines, " --- ") +
         (errors ? "\nIn the column measured ± is the standard error over runs.\n\n" : "\n");
}

}  // namespace

std::string markdown(const Results& r) {
  const Experiment& e = r.experiment;
  std::string out = "# " + e.title + "\n\n";
  if (!e.question.empty()) out += e.question + "\n\n";
  if (!e.paper.empty()) out += "Paper: " + e.paper + (e.place.empty() ? "" : ", " + e.place) + ".\n";
  out += str("Experiment `", e.id, "`, scale ", r.scale.id, ", recipe `",
             r.scale.recipe.substr(r.scale.recipe.rfind('/') + 1), "`");
  std::string averaged;
  for (const std::string& axis : e.average) averaged += (averaged.empty() ? "" : ", ") + axis;
  if (!averaged.empty()) out += "; mean ± standard deviation over " + averaged;
  out += ".\n\n" + cells_table(r) + types_table(r);
  const bool formulas = std::any_of(r.cells.begin(), r.cells.end(), [](const Cell& c) { return !c.runs; });
  if (formulas) out += "*Italics*: by formula, not run.\n\n";
  out += verdict_table(r);
  for (const auto& [cell, why] : r.failed) out += "- cell " + cell + " failed: " + why + "\n";
  for (const std::string& note : e.notes) out += "- " + note + "\n";
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace lmx_cli::experiments
