#include "app/experiment/results.h"

#include <cmath>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::Node;
using lmx::str;

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
  } catch (const lmx::UserError& e) {
    const auto* const formula = dynamic_cast<const FormulaError*>(&e);
    Verdict v{check.claim, check.kind, check.paper, "", "", kNotMeasured, formula ? formula->reason() : e.what()};
    try {
      if (!is_incomparable(check, scope)) return v;
    } catch (const lmx::UserError&) {
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
  return "p = " + number_text(test.adjusted, 2) +
         (comparisons > 1 ? str(" after correction for ", comparisons, " comparisons") : "");
}

std::string percent_text(double fraction) {
  return number_text(100 * fraction, 3) + " %";
}

double distance(double value, double expected) {
  if (value == expected) return 0;
  return expected == 0 ? INFINITY : std::fabs(value / expected - 1);
}

}  // namespace lmx_cli::experiments
