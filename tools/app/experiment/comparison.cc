#include "app/experiment/results.h"

#include <algorithm>
#include <sstream>

#include "app/print/markdown.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::str;

constexpr const char* kWithin = "within";
constexpr const char* kOutside = "outside";
constexpr const char* kPlanned = "planned";

std::string origin_text(const Measure& m, const Cell& cell) {
  const Origin origin = origin_of(m, cell);
  if (origin == Origin::planned) return kPlanned;
  if (origin == Origin::formula) return "formula";
  return cell.virtual_ranks ? "virtual ranks" : "measured";
}

std::string off_text(double ours, double paper) {
  return (ours >= paper ? "+" : "-") + percent_text(distance(ours, paper));
}

Comparison compare(const Results& r, const Row& row, const Measure& m) {
  const std::vector<Sample> samples = samples_of(r, row, m);
  const std::string paper = paper_text(row, m), outcome = outcome_of(m, r, row);
  const std::optional<double> number = lmx::parse_double(paper);
  Comparison c{&m, row_of(r.experiment, row.first()), paper, outcome, "", "", "not run"};
  const bool no_time = lacks_time(m, row.first()) && r.by_cell.contains(row.first().id);
  if (samples.empty() && outcome.empty() && !no_time) return c;
  c.origin = origin_text(m, row.first());
  if (!samples.empty()) c.ours = number_text(mean(samples), m.digits);
  if (!samples.empty() && number) c.off = off_text(mean(samples), *number);
  if (!is_comparable(m, r)) {
    c.verdict = kNotComparable;
  } else if (fixed(r, row, m)) {
    c.verdict = "set";
    c.off = "";  // only the rounding of the anchor is left
  } else if (const std::string setting = dependence(r, row); !setting.empty()) {
    c.verdict = "depends on " + setting;
  } else if (samples.empty() || !number) {
    c.verdict = paper == outcome ? kWithin : kOutside;
  } else {
    const std::optional<TTest> test = paper_test(r, row, m);
    const Standing s = test ? test->standing() : Standing::open;
    c.verdict = s == Standing::holds ? kWithin : s == Standing::fails ? kOutside : kUndecided;
  }
  return c;
}

std::string with_reason(const Verdict& v) {
  return v.verdict + (v.reason.empty() ? "" : ": " + v.reason);
}

}  // namespace

std::vector<Comparison> comparisons(const Results& r) {
  std::vector<Comparison> all;
  for (const Measure& m : r.experiment.measures)
    for (const Row& row : r.rows)
      if (!paper_text(row, m).empty() && applies(r.experiment, m, row.first())) all.push_back(compare(r, row, m));
  return all;
}

std::vector<std::string> outside(const Results& r) {
  std::vector<std::string> lines;
  for (const Comparison& c : comparisons(r)) {
    if (c.verdict != kOutside) continue;
    const std::string allowed = percent_text(c.measure->tolerance());
    lines.push_back(str(c.measure->title, " of cell ", c.cell, ": ", c.ours, ", and the paper has ", c.paper,
                        c.off.empty() ? "" : str(" (", c.off, ", ", allowed, " allowed)")));
  }
  for (const Verdict& v : r.verdicts)
    if (v.fails())
      lines.push_back(str(v.claim, ": ", v.measured, v.expected.empty() ? "" : ", expected " + v.expected));
  return lines;
}

bool anything_judged(const Results& r) {
  const std::vector<Comparison> cells = comparisons(r);
  return std::any_of(cells.begin(), cells.end(),
                     [](const Comparison& c) { return c.verdict == kWithin || c.verdict == kOutside; }) ||
         std::any_of(r.verdicts.begin(), r.verdicts.end(), [&](const Verdict& v) {
           const bool judged = v.verdict != kNotComparable && v.verdict != kNotMeasured && v.verdict != kByConstruction;
           return judged && (v.planned || !r.by_cell.empty());
         });
}

std::string comparison_markdown(const Results& r, bool only_planned) {
  std::vector<std::vector<std::string>> cells{{"measure", "cell", "paper", "lmx", "class", "off", "verdict"}};
  for (const Comparison& c : comparisons(r)) {
    if (only_planned && c.origin != kPlanned) continue;
    const std::string unit = c.measure->unit.empty() ? "" : " (" + c.measure->unit + ")";
    cells.push_back({c.measure->title + unit, c.cell, c.paper, c.ours, c.origin, c.off, c.verdict});
  }
  std::vector<std::vector<std::string>> claims{{"claim", "paper", "expected", "lmx", "verdict"}};
  for (const Verdict& v : r.verdicts)
    if (!only_planned || v.planned) claims.push_back({v.claim, v.paper, v.expected, v.measured, with_reason(v)});
  const std::string place = r.experiment.place.empty() ? "" : " (" + r.experiment.place + ")";
  std::string text = str("`", r.experiment.id, "`, scale ", r.scale.id, ": ", r.experiment.title, place, ".",
                         only_planned ? "" : devices_note(r), "\n\n");
  if (cells.size() > 1) text += markdown_table(cells, " --- ") + "\n";
  if (claims.size() > 1) text += markdown_table(claims, " --- ") + "\n";
  return text + planned_note(r);
}

std::vector<Block> blocks_of(const std::string& page, const std::string& file) {
  const std::string head = "<!-- experiment ", tail = "<!-- end -->";
  std::vector<Block> blocks;
  for (size_t at = 0; (at = page.find(head, at)) != std::string::npos;) {
    const size_t line = std::min(page.find('\n', at), page.size());
    std::istringstream words(page.substr(at + head.size(), line - at - head.size()));
    Block block;
    std::string word;
    words >> block.id >> block.scale >> word;
    block.only_planned = word == kPlanned;
    const size_t end = page.find(tail, line), next = page.find(head, line);
    if ((word != "-->" && !block.only_planned) || end == std::string::npos || next < end)
      throw lmx::UserError(str("[experiment] ", file, ": '", page.substr(at, line - at),
                               "' begins no block; a block begins with <!-- experiment ID SCALE planned --> or ",
                               "<!-- experiment ID SCALE -->, and ends with <!-- end -->"));
    block.begin = line + 1;
    block.end = end;
    blocks.push_back(block);
    at = end;
  }
  return blocks;
}

}  // namespace lmx_cli::experiments
