#include "app/sweep/table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/records/half_interval.h"
#include "app/records/records.h"
#include "app/sweep/journal.h"
#include "app/sweep/store.h"
#include "base/text.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app::sweep {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// "97.31 ± 0.48 (3)": mean, standard deviation with the two digits that are significant, and number of values.
std::string mean_text(const Configuration& c) {
  std::string text = number_text(c.mean());
  if (c.values.size() < 2) return text;
  return str(text, " ± ", format("%.2g", deviation_of(c.values)), " (", c.values.size(), ")");
}

// The same with "*" before the best and "~" before those within the noise. The outcomes, if the configuration has no
// value.
std::string cell_text(const Configuration& c) {
  if (c.values.empty()) return c.outcomes();
  std::string text = (c.best ? "*" : c.within_noise ? "~" : "") + mean_text(c);
  if (c.values.size() < c.states.size()) text += str(" of ", c.states.size());
  return text;
}

// Three values at least: the interval of two is many times as wide as their distance.
std::string interval_text(const Configuration& c) {
  const auto half = half_interval(c.values);
  if (!half || c.values.size() < 3) return "-";
  return str(number_text(c.mean() - *half), " to ", number_text(c.mean() + *half));
}

Rows list_rows(const Summary& s) {
  Rows rows{{}};
  for (const Axis& axis : s.axes) rows[0].push_back(axis.name);
  rows[0].push_back(s.metric.text());
  if (s.seeds) rows[0].push_back("95 % interval");
  rows[0].insert(rows[0].end(), {"outcomes", ""});
  for (const Configuration& c : s.configurations) {
    std::vector<std::string> row = c.place;
    row.push_back(c.values.empty() ? "-" : mean_text(c));
    if (s.seeds) row.push_back(interval_text(c));
    row.insert(row.end(), {c.outcomes(), c.best ? "best" : c.within_noise ? "within noise" : ""});
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns a grid with the first axis down and the second across. Empty if there are not exactly two axes with listed
// values, or if points are missing.
Rows grid_rows(const Summary& s) {
  if (s.axes.size() != 2 || s.axes[0].values.empty() || s.axes[1].values.empty()) return {};
  std::map<Place, const Configuration*> at;
  for (const Configuration& c : s.configurations) at[c.place] = &c;
  Rows rows{{s.axes[0].name + " \\ " + s.axes[1].name}};
  rows[0].insert(rows[0].end(), s.axes[1].values.begin(), s.axes[1].values.end());
  for (const std::string& down : s.axes[0].values) {
    rows.push_back({down});
    for (const std::string& across : s.axes[1].values) {
      const auto found = at.find({down, across});
      if (found == at.end()) return {};
      rows.back().push_back(cell_text(*found->second));
    }
  }
  return rows;
}

std::string notes(const Summary& s) {
  if (!s.seeds) return "* best; each configuration ran once, so the noise between seeds is not known";
  return "Mean ± standard deviation (number of seeds). * best mean; ~ within noise: the difference from the best is "
         "not "
         "significant at 5 % (Welch's t-test)";
}

void mark_best(Summary& s) {
  Configuration* best = nullptr;
  for (Configuration& c : s.configurations)
    if (!c.values.empty() && (!best || s.metric.better(c.mean(), best->mean()))) best = &c;
  if (!best) return;
  best->best = true;
  for (Configuration& c : s.configurations)
    c.within_noise =
        !c.best && !c.values.empty() && !difference_of_means(c.values, best->values).significant().value_or(true);
}

// The characters that mean something to LaTeX.
std::string latex_text(const std::string& text) {
  static const std::map<char, std::string> kSpecial{
      {'\\', "\\textbackslash{}"}, {'~', "\\textasciitilde{}"}, {'^', "\\textasciicircum{}"}};
  std::string out;
  for (const char c : text) {
    const auto special = kSpecial.find(c);
    if (special != kSpecial.end()) {
      out += special->second;
      continue;
    }
    if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  for (size_t at; (at = out.find("±")) != std::string::npos;) out.replace(at, std::string("±").size(), "$\\pm$");
  return out;
}

}  // namespace

double Configuration::mean() const {
  return mean_of(values);
}

std::string Configuration::outcomes() const {
  if (states.size() == 1 && states[0].outcome == Outcome::stopped && states[0].value)
    return str("stopped at step ", states[0].step, ": ", number_text(*states[0].value));
  std::vector<std::pair<std::string, size_t>> counts;
  for (const State& s : states) {
    const std::string name = s.outcome == Outcome::none ? "waiting" : name_of(s.outcome);
    const auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == name; });
    if (found == counts.end())
      counts.emplace_back(name, 1);
    else
      ++found->second;
  }
  std::string text;
  for (const auto& [name, count] : counts)
    text += (text.empty() ? "" : ", ") + (states.size() == 1 ? name : str(count, " ", name));
  return text;
}

Summary summarise(const Plan& plan, const std::vector<State>& states) {
  Summary s;
  s.recipe = plan.name;
  s.metric = plan.request.metric;
  s.seeds = plan.has_seeds();
  s.axes = plan.axes;
  if (s.seeds) s.axes.pop_back();
  std::map<size_t, size_t> index;
  for (size_t p = 0; p < plan.points.size(); ++p) {
    const Point& point = plan.points[p];
    const auto [found, fresh] = index.emplace(point.configuration, s.configurations.size());
    if (fresh) {
      Configuration c;
      c.place.assign(point.place.begin(), point.place.end() - (s.seeds ? 1 : 0));
      s.configurations.push_back(std::move(c));
    }
    Configuration& c = s.configurations[found->second];
    c.states.push_back(states[p]);
    if (states[p].outcome == Outcome::done && states[p].value) c.values.push_back(*states[p].value);
  }
  mark_best(s);
  return s;
}

std::string csv(const Summary& s) {
  std::string out;
  for (const Axis& axis : s.axes) out += csv_cell(axis.name) + ",";
  out += csv_cell(s.metric.text()) + ",sd,low,high,n,best,within_noise,values,outcomes\n";
  for (const Configuration& c : s.configurations) {
    for (const std::string& value : c.place) out += csv_cell(value) + ",";
    const auto half = half_interval(c.values);
    std::string values;
    for (const double v : c.values) values += (values.empty() ? "" : " ") + lmx::number_text(v);
    out += (c.values.empty() ? "" : lmx::number_text(c.mean())) + "," +
           (half ? lmx::number_text(deviation_of(c.values)) : "") + "," +
           (half ? lmx::number_text(c.mean() - *half) : "") + "," + (half ? lmx::number_text(c.mean() + *half) : "") +
           "," + std::to_string(c.values.size()) + "," + (c.best ? "1" : "0") + "," + (c.within_noise ? "1" : "0") +
           "," + values + "," + csv_cell(c.outcomes()) + "\n";
  }
  return out;
}

std::string latex(const Summary& s) {
  const Rows rows = list_rows(s);
  std::string out = "\\begin{tabular}{" + std::string(rows[0].size(), 'l') + "}\n\\toprule\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    const bool bold = r > 0 && s.configurations[r - 1].best;
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const std::string text = latex_text(rows[r][c]);
      out += (c ? " & " : "") + (bold && !text.empty() ? "\\textbf{" + text + "}" : text);
    }
    out += r == 0 ? " \\\\\n\\midrule\n" : " \\\\\n";
  }
  return out + "\\bottomrule\n\\end{tabular}\n% " + notes(s) + "\n";
}

std::string markdown(const Summary& s) {
  std::string out = markdown_table(list_rows(s), "---");
  if (const Rows grid = grid_rows(s); !grid.empty())
    out += "\n" + s.metric.text() + "\n\n" + markdown_table(grid, "---");
  return out + "\n" + notes(s) + "\n";
}

std::string text(const Summary& s) {
  std::string out = table(list_rows(s));
  if (const Rows grid = grid_rows(s); !grid.empty()) out += "\n" + s.metric.text() + "\n" + table(grid);
  return fit(out + notes(s) + "\n");
}

nlohmann::ordered_json json(const Summary& s, const std::string& sweep) {
  Json configurations = Json::array();
  for (const Configuration& c : s.configurations) {
    Json place = Json::object(), values = Json::array(), outcomes = Json::array();
    for (size_t a = 0; a < s.axes.size(); ++a) place[s.axes[a].name] = c.place[a];
    for (const double value : c.values) values.push_back(json_number(value));
    for (const State& state : c.states)
      outcomes.push_back(state.outcome == Outcome::none ? "waiting" : name_of(state.outcome));
    Json one{{"place", place},
             {"values", values},
             {"outcomes", outcomes},
             {"best", c.best},
             {"within_noise", c.within_noise}};
    if (!c.values.empty()) one["mean"] = json_number(c.mean());
    if (const auto half = half_interval(c.values)) {
      one["sd"] = json_number(deviation_of(c.values));
      one["low"] = json_number(c.mean() - *half);
      one["high"] = json_number(c.mean() + *half);
    }
    configurations.push_back(std::move(one));
  }
  return {{"sweep", sweep},
          {"recipe", s.recipe},
          {"metric", s.metric.name()},
          {"maximize", s.metric.maximize},
          {"configurations", configurations}};
}

std::string number_text(double value) {
  return format("%.5g", value);
}

namespace {

// Returns the values of an axis; for an interval the sampled values in increasing order.
std::vector<std::string> values_of(const Plan& plan, size_t axis) {
  if (!plan.axes[axis].interval) return plan.axes[axis].values;
  std::vector<std::string> values;
  for (const Point& point : plan.points) values.push_back(point.place[axis]);
  std::sort(values.begin(), values.end(), [](const std::string& a, const std::string& b) {
    return parse_double(a).value_or(0) < parse_double(b).value_or(0);
  });
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

bool has_records(const std::string& run) {
  std::error_code error;
  return std::filesystem::exists(run + "/metrics.jsonl", error) &&
         std::filesystem::exists(run + "/provenance.json", error);
}

}  // namespace

SweepReport read_sweep(const std::string& directory) {
  const Folder folder{directory};
  const Plan plan = read_plan(folder);
  const Standing standing = read_standing(plan, directory);
  SweepReport report;
  report.view.metric = plan.request.metric.text();
  report.view.lower_is_better = !plan.request.metric.maximize;
  for (size_t a = 0; a < plan.axes.size(); ++a) report.view.axes.push_back({plan.axes[a].name, values_of(plan, a)});
  for (size_t p = 0; p < plan.points.size(); ++p) {
    const Point& point = plan.points[p];
    const State& s = standing.states[p];
    const std::string outcome = s.outcome == Outcome::none ? (s.begun ? "begun" : "waiting") : name_of(s.outcome);
    // As in the table: the last number of a diverged or stopped run is not a value of the metric.
    const double value = s.outcome == Outcome::done ? s.value.value_or(NAN) : NAN;
    report::SweepView::Point shown{point.place, outcome, value, -1};
    if (has_records(folder.run(point))) {
      try {
        report.runs.push_back(report::read_report(folder.run(point)));
        shown.run = static_cast<int64_t>(report.runs.size()) - 1;
      } catch (const UserError& e) {
        log_warn(str("point ", point.id, " is left out of the curves: ", e.what()));
      }
    }
    report.view.points.push_back(std::move(shown));
  }
  report.summary = summarise(plan, standing.states);
  return report;
}

}  // namespace lmx::app::sweep
