#include "app/experiment/break_even.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/experiment/results.h"
#include "app/plan/plan.h"
#include "app/records/half_interval.h"
#include "app/report/chart.h"
#include "app/run/shipped.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

using Curve = std::vector<std::pair<double, double>>;

constexpr double kBitsOfGb = 8;
constexpr int kDecades = 4;  // from kSlowestGbit to kFastestGbit
constexpr int kParts = 400;  // at which an interval may end, between the least part and 1

// The bandwidth at a share of the range of verdicts, whose scale is logarithmic.
double gbit_at(double share) {
  return kSlowestGbit * std::pow(kFastestGbit / kSlowestGbit, share);
}

// The value at x of a curve that is linear in log x. REQUIRES: x is in its range.
double at_log(const Curve& curve, double x) {
  const auto right = std::lower_bound(curve.begin(), curve.end(), std::pair<double, double>(x, -INFINITY));
  if (right == curve.end()) return curve.back().second;
  if (right == curve.begin() || right->first == x) return right->second;
  const auto left = right - 1;
  const double t = std::log(x / left->first) / std::log(right->first / left->first);
  return left->second + t * (right->second - left->second);
}

// By how much the loss of a method is above that of the base after a part of its steps, in the mean over seeds.
Estimate excess_of(const std::vector<Curve>& base, const std::vector<double>& losses, double part) {
  std::vector<Sample> excess;
  for (size_t s = 0; s < losses.size(); ++s) excess.push_back({0, losses[s] - at_log(base[s], part)});
  return estimate_of_mean(excess);
}

plan::Request request_of(const Experiment& e, const Cell& cell, const AxisValue& method,
                         const BreakEven::Phase& phase) {
  const BreakEven& b = e.break_even;
  plan::Request r;
  r.recipe = e.path_of(b.recipe);
  r.machine = e.machine(b.machine);
  r.ranks = {b.ranks};
  for (const Node& node : method.overrides) r.compose.overrides.push_back(filled(cell, node.text));
  for (const std::string& text : phase.overrides) r.compose.overrides.push_back(filled(cell, text));
  r.compose = with_plugins(r.compose);
  return r;
}

StepCurve curve_of(const Experiment& e, const Cell& cell, const AxisValue& method, const BreakEven::Phase& phase) {
  const std::string where = str(to_string(e.break_even.mark), ": break_even: ", e.break_even.axis, " ", method.label);
  plan::Plan plan;
  try {
    plan = plan::make_plan(request_of(e, cell, method, phase));
  } catch (const UserError& error) {
    throw UserError(str(where, ": ", error.what()));
  }
  if (plan.curves.empty())
    throw UserError(str(where, ": there is no time by bandwidth: either all ", plan.rows[0].ranks,
                        " ranks are in one node, or the memory is too small"));
  StepCurve curve;
  for (const auto& [gb_s, tokens_s] : plan.curves[0].points)
    curve.emplace_back(gb_s * kBitsOfGb, plan.rows[0].step_tokens / tokens_s);
  return curve;
}

// The mean step of a method, over its phases.
StepCurve mean_curve(const Experiment& e, const Cell& cell, const AxisValue& method) {
  const auto found = e.break_even.phases_of.find(method.label);
  if (found == e.break_even.phases_of.end()) return curve_of(e, cell, method, {});
  StepCurve mean;
  for (const BreakEven::Phase& phase : found->second) {
    const StepCurve curve = curve_of(e, cell, method, phase);
    if (mean.empty())
      for (const auto& [gbit_s, seconds] : curve) mean.emplace_back(gbit_s, 0);
    for (auto& [gbit_s, seconds] : mean) seconds += phase.part * at_log(curve, gbit_s);
  }
  return mean;
}

// The rows of the base's runs, by the part of the steps that they make.
class BaseRuns {
 public:
  // `like`: a row of the same group.
  BaseRuns(const Results& results, const Row& like) : results_(results) {
    const BreakEven& b = results.experiment.break_even;
    for (const Row& row : results.rows) {
      const std::string& label = *row.first().value(b.axis);
      const auto shorter = b.parts.find(label);
      const bool same_group = std::all_of(b.within.begin(), b.within.end(), [&](const std::string& axis) {
        return *row.first().value(axis) == *like.first().value(axis);
      });
      if (same_group && (label == b.base || shorter != b.parts.end()))
        rows_[label == b.base ? 1 : shorter->second] = &row;
    }
  }
  bool compares() const { return rows_.size() > 1 && rows_.contains(1); }

  // Fills the curves and the method's losses of the seeds that have all runs.
  void take(const Row& row, std::vector<Curve>& base, std::vector<double>& losses) const {
    for (const Cell* cell : row.cells) {
      const std::optional<double> loss = value_of(results_, *cell, measure_);
      if (!loss) continue;
      const std::string seed = row_of(results_.experiment, *cell, true);
      Curve curve;
      for (const auto& [part, base_row] : rows_)
        for (const Cell* other : base_row->cells)
          if (row_of(results_.experiment, *other, true) == seed)
            if (const auto value = value_of(results_, *other, measure_)) curve.emplace_back(part, *value);
      if (curve.size() != rows_.size()) continue;
      base.push_back(std::move(curve));
      losses.push_back(*loss);
    }
  }

 private:
  const Results& results_;
  const std::string& measure_ = results_.experiment.break_even.loss;
  std::map<double, const Row*> rows_;
};

std::string gbit_text(double gbit_s) {
  return number_text(gbit_s, 2);
}

std::string verdict_of(const Between& x) {
  if (x.low == 0 && x.high == 0) return str("pays nowhere above ", gbit_text(kSlowestGbit), " Gbit/s");
  if (std::isinf(x.low)) return str("pays up to ", gbit_text(kFastestGbit), " Gbit/s");
  const std::string low = x.low == 0 ? "" : "pays below " + gbit_text(x.low) + " Gbit/s",
                    high = std::isinf(x.high) ? "" : "does not pay above " + gbit_text(x.high) + " Gbit/s";
  if (low.empty() && high.empty()) return "undecided";
  if (low.empty()) return high + "; below, undecided";
  return low + (high.empty() ? "; above, undecided" : ", " + high);
}

}  // namespace

void BreakEven::fields(Fields& f) {
  f.required("axis", axis, "whose values are the methods");
  f.required("base", base, "the value that the others are compared with");
  f.subtree("shorter", shorter, "value: part; values of the axis that are runs of the base with a part of its steps");
  f.required("loss", loss, "a measure; less is better");
  f.field("within", within, "axes whose values the compared rows share");
  f.required("recipe", recipe, "whose times of a step are planned, relative to this file");
  f.required("machine", machine, "of the plan: a name, or a file relative to this one that ends in .yaml");
  f.required("ranks", ranks, "of the plan, on more than one node");
  f.subtree("phases", phases, "value: [{part, overrides}]; the parts of a method's steps that are planned separately");
}

void BreakEven::Phase::fields(Fields& f) {
  f.field("part", part, "of the method's steps; the parts of all phases add up to 1", {0, 1});
  f.field("overrides", overrides, "of the plan of these steps, after those of the method");
}

BreakEven read_break_even(const Node& tree, const Experiment& e) {
  if (!given(tree)) return {};
  BreakEven b = read_config<BreakEven>(tree, "break_even");
  b.mark = tree.mark;
  const Axis* axis = e.axis(b.axis);
  if (!axis) throw UserError(at(tree, "break_even.axis") + str("there is no axis '", b.axis, "'"));
  std::vector<std::string> labels, axes;
  for (const AxisValue& value : axis->values) labels.push_back(value.label);
  for (const Axis& other : e.axes) axes.push_back(other.id);
  const auto check = [&](const Node& node, const std::string& key, const std::string& name,
                         const std::vector<std::string>& names) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UserError(at(node, "break_even." + key) + str("there is no '", name, "'", did_you_mean(name, names)));
  };
  check(tree, "base", b.base, labels);
  for (const std::string& other : b.within) check(tree, "within", other, axes);
  if (!e.measure(b.loss)) throw UserError(at(tree, "break_even.loss") + str("there is no measure '", b.loss, "'"));
  if (b.shorter.kind != Node::Kind::map)
    throw UserError(at(given(b.shorter) ? b.shorter : tree, "break_even.shorter") +
                    "expected value: part, such as {half: 0.5}");
  for (const auto& [label, node] : b.shorter.entries) {
    check(node, "shorter", label, labels);
    const double part = parse_double(node.text).value_or(NAN);
    if (!(part > 0 && part < 1))
      throw UserError(at(node, "break_even.shorter." + label) +
                      str("expected a part of the steps between 0 and 1, got '", node.text, "'"));
    b.parts[label] = part;
  }
  if (given(b.phases) && b.phases.kind != Node::Kind::map)
    throw UserError(at(b.phases, "break_even.phases") + "expected value: [{part, overrides}]");
  for (const auto& [label, list] : b.phases.entries) {
    check(list, "phases", label, labels);
    const std::string path = "break_even.phases." + label;
    double sum = 0;
    for (const Node& phase : list.items) {
      b.phases_of[label].push_back(read_config<BreakEven::Phase>(phase, path));
      sum += b.phases_of[label].back().part;
    }
    if (std::fabs(sum - 1) > 1e-9)
      throw UserError(at(list, path) + str("the parts of its phases add up to ", sum, ", not to 1"));
  }
  return b;
}

std::map<std::string, StepCurve> step_curves(const Experiment& experiment, const std::vector<Cell>& cells) {
  std::map<std::string, StepCurve> curves;
  const BreakEven& b = experiment.break_even;
  std::map<std::string, const Cell*> cell_of;  // by method
  for (const Cell& cell : cells)
    if (const std::string* method = cell.value(b.axis)) cell_of.emplace(*method, &cell);
  const bool compares =
      std::any_of(b.parts.begin(), b.parts.end(), [&](const auto& part) { return cell_of.contains(part.first); });
  if (!compares) return curves;
  for (const AxisValue& method : experiment.axis(b.axis)->values) {
    const auto cell = cell_of.find(method.label);
    if (cell != cell_of.end() && !b.parts.contains(method.label))
      curves[method.label] = mean_curve(experiment, *cell->second, method);
  }
  return curves;
}

Between equal_part(const std::vector<Curve>& base, const std::vector<double>& losses, size_t rows) {
  const double least = base[0][0].first;
  Between part{0, 0, INFINITY};
  bool reached = false;
  for (int i = 0; i <= kParts; ++i) {
    const double f = std::pow(least, 1 - static_cast<double>(i) / kParts);
    const Estimate excess = excess_of(base, losses, f);
    const bool sure = losses.size() > 1 && test_of(excess).p * static_cast<double>(rows) <= kSignificant;
    if (excess.value < 0 && sure) part.low = f;
    if (excess.value < 0 && !reached) part.value = f;
    reached |= excess.value >= 0;
    if (excess.value > 0 && sure && std::isinf(part.high)) part.high = f;
  }
  if (!reached) part.value = INFINITY;
  return part;
}

double bandwidth_of(const StepCurve& method, const StepCurve& base, double part) {
  if (part == 0) return 0;
  double below = 0;
  constexpr int kSteps = 1000;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = gbit_at(static_cast<double>(i) / kSteps);
    if (at_log(method, x) >= part * at_log(base, x)) return below;
    below = x;
  }
  return INFINITY;
}

std::vector<BreakEvenRow> break_even(const Results& results, const std::map<std::string, StepCurve>& curves) {
  const BreakEven& b = results.experiment.break_even;
  std::vector<BreakEvenRow> rows;
  if (!curves.contains(b.base)) return rows;
  struct Compared {
    const Row* row;
    std::vector<Curve> base;
    std::vector<double> losses;
  };
  std::vector<Compared> compared;
  for (const Row& row : results.rows) {
    const std::string& label = *row.first().value(b.axis);
    if (label == b.base || !curves.contains(label)) continue;
    const BaseRuns runs(results, row);
    if (!runs.compares()) continue;
    Compared c{&row, {}, {}};
    runs.take(row, c.base, c.losses);
    if (!c.losses.empty()) compared.push_back(std::move(c));
  }
  const StepCurve& base = curves.at(b.base);
  for (const Compared& c : compared) {
    const Cell& cell = c.row->first();
    BreakEvenRow row{.method = *cell.value(b.axis), .labels = c.row->labels, .seeds = c.losses.size()};
    for (const std::string& axis : b.within) row.group += "-" + *cell.value(axis);
    const StepCurve& own = curves.at(row.method);
    row.part = equal_part(c.base, c.losses, compared.size());
    const auto below = [&](double part) { return bandwidth_of(own, base, std::isinf(part) ? 1 : part); };
    row.gbit_s = {below(row.part.value), below(row.part.low),
                  std::isinf(row.part.high) ? INFINITY : below(row.part.high)};
    for (int i = 0; i <= kPointsADecade * kDecades; ++i) {
      const double x = gbit_at(static_cast<double>(i) / (kPointsADecade * kDecades));
      row.ratios.emplace_back(x, at_log(own, x) / at_log(base, x));
    }
    row.verdict = verdict_of(row.gbit_s);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::pair<std::string, std::string>> break_even_figures(const Results& results) {
  const std::string& base = results.experiment.break_even.base;
  std::vector<std::pair<std::string, std::string>> figures;
  std::map<std::string, Chart> charts;
  for (const BreakEvenRow& row : results.break_even) {
    Chart& chart = charts[row.group];
    chart.title = str("Time to the same loss, relative to ", base, row.group.empty() ? "" : ", " + row.group.substr(1));
    chart.x_title = "Gbit/s between nodes (planned)";
    chart.y_title = str("below 1: sooner than ", base);
    chart.log_x = chart.log_y = true;
    const double part = std::isinf(row.part.value) ? 1 : row.part.value;
    if (part == 0) continue;
    ChartSeries line{row.method, {}, false, true, false};
    for (const auto& [x, ratio] : row.ratios)
      line.points.push_back({x, ratio / part, 0, str(row.method, ": ", number_text(ratio / part, 3))});
    chart.series.push_back(std::move(line));
  }
  for (const auto& [group, chart] : charts) figures.emplace_back("break_even" + group + ".svg", svg(chart));
  return figures;
}

}  // namespace lmx::app::experiment
