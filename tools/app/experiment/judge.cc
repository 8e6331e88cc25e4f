#include <algorithm>
#include <cmath>
#include <sstream>

#include "app/experiment/results.h"
#include "app/print/words.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

constexpr int64_t kDigits = 4;

void add_reason(Verdict& verdict, const std::string& reason) {
  verdict.reason = verdict.reason.empty() ? reason : reason + "; " + verdict.reason;
}

class Judge {
 public:
  Judge(const Check& check, const ResultScope& scope) : check_(check), scope_(scope) {
    verdict_ = {check.claim, check.kind, check.paper, "", "", "", check.note};
  }

  Verdict take() {
    given(check_.ascending) ? judge_order() : judge_value();
    if (!tests_.empty() && (check_.kind != "hardware" || scope_.launched())) test();
    return std::move(verdict_);
  }

 private:
  double number(const Node& node, const std::string& what, const Scope& scope) const {
    return evaluate(node, check_.path + what, scope);
  }
  const Estimate& measured(const Node& node, const std::string& what) {
    verdict_.estimates.push_back(estimate(scope_, [&](const Scope& s) { return number(node, what, s); }));
    const Estimate& e = verdict_.estimates.back();
    verdict_.measured += (verdict_.measured.empty() ? "" : ", ") + estimate_text(e, kDigits);
    if (!std::isfinite(e.value)) tests_.push_back({.fails = true});
    verdict_.planned |= e.planned;
    return e;
  }
  // Tests that `margin` is not below 0, or that it is above 0.
  TTest margin_test(const std::function<double(const Scope&)>& margin, bool above = false) {
    const Estimate e = estimate(scope_, margin);
    if (single_.empty()) single_ = e.single;
    TTest test = test_of(e);
    test.fails |= above && e.value == 0;
    return test;
  }
  void expected(const std::string& text) { verdict_.expected += (verdict_.expected.empty() ? "" : ", ") + text; }

  void judge_value() {
    if (!given(check_.value)) return;
    const Estimate value = measured(check_.value, ".value");
    const auto of_value = [this](const Scope& s) { return number(check_.value, ".value", s); };
    if (given(check_.expect)) {
      const double wanted = number(check_.expect, ".expect", scope_), tolerance = check_.tolerance();
      expected(number_text(wanted, kDigits) + (tolerance > 0 ? str(" (", percent_text(tolerance), " allowed)") : ""));
      verdict_.measured +=
          str(" (", value.value >= wanted ? "+" : "-", percent_text(distance(value.value, wanted)), " off)");
      // Checks both ends of the permitted interval, because the distance itself has a kink at 0 that no standard error
      // describes.
      const auto end = [&](double side) {
        return margin_test([&, side](const Scope& s) {
          const double middle = number(check_.expect, ".expect", s);
          return tolerance * std::fabs(middle) + side * (of_value(s) - middle);
        });
      };
      const TTest lower = end(1), upper = end(-1);
      // Only one of the ends can fail, so that there is nothing to correct for.
      tests_.push_back(lower.fails ? lower : upper.fails ? upper : joined_test({lower, upper}));
    }
    if (given(check_.at_least)) {
      expected("≥ " + number_text(number(check_.at_least, ".at_least", scope_), kDigits));
      tests_.push_back(
          margin_test([&](const Scope& s) { return of_value(s) - number(check_.at_least, ".at_least", s); }));
    }
    if (given(check_.at_most)) {
      expected("≤ " + number_text(number(check_.at_most, ".at_most", scope_), kDigits));
      tests_.push_back(
          margin_test([&](const Scope& s) { return number(check_.at_most, ".at_most", s) - of_value(s); }));
    }
  }

  void judge_order() {
    const std::vector<Node>& items = check_.ascending.items;
    const auto what = [](size_t i) { return str(".ascending.", i); };
    for (size_t i = 0; i < items.size(); ++i) {
      measured(items[i], what(i));
      if (i > 0)
        tests_.push_back(margin_test(
            [&](const Scope& s) { return number(items[i], what(i), s) - number(items[i - 1], what(i - 1), s); }, true));
    }
    expected("ascending");
  }

  void test() {
    const bool chance = check_.kind != "exact" && check_.kind != "formula";
    if (chance && !single_.empty() && check_.by_construction.empty()) {
      verdict_.verdict = kUndecided;
      add_reason(verdict_, str("spread not measured: one run of ", single_[0],
                               single_.size() > 1 ? str(" and of ", single_.size() - 1, " others") : ""));
    } else {
      verdict_.test = joined_test(tests_);
    }
  }

  const Check& check_;
  const ResultScope& scope_;
  Verdict verdict_;
  std::vector<TTest> tests_;  // the claim holds if all of them do
  std::vector<std::string> single_;
};

}  // namespace

// Whether `incomparable` holds. UserError: its exception refers to a cell that has not run.
bool is_incomparable(const Check& check, const ResultScope& scope) {
  if (check.incomparable.empty()) return false;
  return !given(check.unless) || evaluate(check.unless, check.path + ".unless", scope) == 0;
}

Verdict compare(const Check& check, const ResultScope& scope) {
  Verdict v = Judge(check, scope).take();
  if (is_incomparable(check, scope) || (v.verdict.empty() && !v.test && check.kind == "hardware")) {
    v.test.reset();
    v.verdict = kNotComparable;
    v.reason =
        check.incomparable.empty() ? "without --launcher, numbers of hardware are reported only" : check.incomparable;
  }
  return v;
}

Verdict judge(const Check& check, const ResultScope& scope) {
  try {
    return compare(check, scope);
  } catch (const UserError& e) {
    const auto* const formula = dynamic_cast<const FormulaError*>(&e);
    Verdict v{check.claim, check.kind, check.paper, "", "", kNotMeasured, formula ? formula->reason() : e.what()};
    try {
      if (!is_incomparable(check, scope)) return v;
    } catch (const UserError&) {
      return v;
    }
    v.verdict = kNotComparable;
    v.reason = check.incomparable;
    return v;
  }
}

void conclude(Verdict& v, const Check& check, size_t comparisons) {
  if (!v.test) return;
  const Standing standing = v.test->standing();
  if (!check.by_construction.empty()) {
    const bool fails = standing == Standing::fails;
    v.verdict = fails ? kRefuted : kByConstruction;
    add_reason(v, fails ? "what lmx promises does not hold: " + check.by_construction : check.by_construction);
  } else if (standing == Standing::open) {
    v.verdict = kUndecided;
    add_reason(v, significance_text(*v.test, comparisons));
  } else if (!check.depends_on.empty()) {
    v.verdict = "depends on " + check.depends_on;
  } else {
    v.verdict = standing == Standing::fails ? kRefuted : kReproduced;
  }
}

std::string significance_text(const TTest& test, size_t comparisons) {
  const size_t needed = test.runs_needed(comparisons);
  return "p = " + number_text(test.adjusted, 2) +
         (comparisons > 1 ? str(" after correction for ", comparisons, " comparisons") : "") +
         (needed > 0 ? str("; needs about ", needed, " runs in place of ", test.runs, ", if these vary alike") : "");
}

std::string percent_text(double fraction) {
  return number_text(100 * fraction, 3) + " %";
}

double distance(double value, double expected) {
  if (value == expected) return 0;
  return expected == 0 ? INFINITY : std::fabs(value / expected - 1);
}

namespace {

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
  const std::optional<double> number = parse_double(paper);
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
    c.off = "";  // only rounding is left
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
      throw UserError(str("[experiment] ", file, ": '", page.substr(at, line - at),
                          "' begins no block; a block begins with <!-- experiment ID SCALE planned --> or ",
                          "<!-- experiment ID SCALE -->, and ends with <!-- end -->"));
    block.begin = line + 1;
    block.end = end;
    blocks.push_back(block);
    at = end;
  }
  return blocks;
}

}  // namespace lmx::app::experiment
