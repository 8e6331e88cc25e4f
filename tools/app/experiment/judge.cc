#include "app/experiment/judge.h"

#include <cmath>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::Node;
using lmx::str;

constexpr int64_t kDigits = 4;

class Judge {
 public:
  Judge(const Check& check, const ResultScope& scope) : check_(check), scope_(scope) {
    verdict_ = {check.claim, check.kind, check.paper, "", "", "", check.note};
  }

  Verdict take() {
    given(check_.ascending) ? judge_order() : judge_value();
    if (judged_ && (check_.kind != "hardware" || scope_.launched())) conclude();
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
    if (!std::isfinite(e.value)) fails_ = true;
    verdict_.planned |= e.planned;
    return e;
  }
  // Requires that `margin` is not below 0.
  void require(const std::function<double(const Scope&)>& margin, bool above = false) {
    const Estimate e = estimate(scope_, margin);
    const Standing s = standing(e.value, e.error);
    fails_ |= s == Standing::fails || (above && e.value == 0 && e.error == 0);
    open_ |= s == Standing::open;
    if (single_.empty()) single_ = e.single;
    judged_ = true;
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
      for (const double side : {-1.0, 1.0})
        require([&](const Scope& s) {
          const double middle = number(check_.expect, ".expect", s);
          return tolerance * std::fabs(middle) + side * (of_value(s) - middle);
        });
    }
    if (given(check_.at_least)) {
      expected("≥ " + number_text(number(check_.at_least, ".at_least", scope_), kDigits));
      require([&](const Scope& s) { return of_value(s) - number(check_.at_least, ".at_least", s); });
    }
    if (given(check_.at_most)) {
      expected("≤ " + number_text(number(check_.at_most, ".at_most", scope_), kDigits));
      require([&](const Scope& s) { return number(check_.at_most, ".at_most", s) - of_value(s); });
    }
  }

  void judge_order() {
    const std::vector<Node>& items = check_.ascending.items;
    const auto what = [](size_t i) { return str(".ascending.", i); };
    for (size_t i = 0; i < items.size(); ++i) {
      measured(items[i], what(i));
      if (i > 0)
        require([&](const Scope& s) { return number(items[i], what(i), s) - number(items[i - 1], what(i - 1), s); },
                true);
    }
    expected("ascending");
  }

  void conclude() {
    const bool chance = check_.kind == "quality" || check_.kind == "shape";
    if (!check_.by_construction.empty()) {
      verdict_.verdict = fails_ ? kRefuted : kByConstruction;
      add_reason(fails_ ? "what lmx promises does not hold: " + check_.by_construction : check_.by_construction);
    } else if (chance && !single_.empty()) {
      verdict_.verdict = kUndecided;
      add_reason(str("spread not measured: one run of ", single_[0],
                     single_.size() > 1 ? str(" and of ", single_.size() - 1, " others") : ""));
    } else if (fails_ || !open_) {
      verdict_.verdict =
          check_.depends_on.empty() ? (fails_ ? kRefuted : kReproduced) : "depends on " + check_.depends_on;
    } else {
      verdict_.verdict = kUndecided;
      add_reason("less than two standard errors");
    }
  }
  void add_reason(const std::string& reason) {
    verdict_.reason = verdict_.reason.empty() ? reason : reason + "; " + verdict_.reason;
  }

  const Check& check_;
  const ResultScope& scope_;
  Verdict verdict_;
  bool judged_ = false, fails_ = false, open_ = false;
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
  if (is_incomparable(check, scope) || (v.verdict.empty() && check.kind == "hardware")) {
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
    Verdict v{check.claim, check.kind, check.paper, "", "", kNotMeasured, e.what()};
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

std::string percent_text(double fraction) {
  return number_text(100 * fraction, 3) + " %";
}

double distance(double value, double expected) {
  if (value == expected) return 0;
  return expected == 0 ? INFINITY : std::fabs(value / expected - 1);
}

}  // namespace lmx_cli::experiments
