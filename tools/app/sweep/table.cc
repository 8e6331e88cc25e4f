#include "app/sweep/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/print/markdown.h"
#include "app/print/terminal.h"
#include "app/records/half_interval.h"
#include "app/records/json_number.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::str;
using Rows = std::vector<std::vector<std::string>>;

std::string exact(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Prints an interval with two digits, because more are not significant.
std::string interval_text(double half) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", half);
  return text;
}

// "97.31 ± 1.2", with "*" before the best. The outcomes, if the configuration has no value.
std::string cell_text(const Configuration& c) {
  if (c.values.empty()) return c.outcomes();
  std::string text = (c.best ? "*" : "") + number_text(c.mean());
  if (const auto half = half_interval(c.values)) text += " ± " + interval_text(*half);
  if (c.values.size() < c.states.size()) text += str(" (", c.values.size(), " of ", c.states.size(), ")");
  return text;
}

Rows list_rows(const Summary& s) {
  Rows rows{{}};
  for (const Axis& axis : s.axes) rows[0].push_back(axis.name);
  rows[0].insert(rows[0].end(), {s.metric, "95 % interval", "n", "outcomes"});
  for (const Configuration& c : s.configurations) {
    std::vector<std::string> row = c.place;
    const auto half = half_interval(c.values);
    row.push_back(c.values.empty() ? "-" : (c.best ? "*" : "") + number_text(c.mean()));
    row.push_back(half ? str(number_text(c.mean() - *half), " to ", number_text(c.mean() + *half)) : "-");
    row.push_back(std::to_string(c.values.size()));
    row.push_back(c.outcomes());
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
  return str("* best mean", s.seeds ? "; ± half of the 95 % interval of the mean over seeds (Student's t)" : "");
}

void mark_best(Summary& s, const Metric& metric) {
  Configuration* best = nullptr;
  for (Configuration& c : s.configurations)
    if (!c.values.empty() && (!best || metric.better(c.mean(), best->mean()))) best = &c;
  if (best) best->best = true;
}

}  // namespace

double Configuration::mean() const {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
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
  s.metric = plan.request.metric.text();
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
  mark_best(s, plan.request.metric);
  return s;
}

std::string csv(const Summary& s) {
  std::string out;
  for (const Axis& axis : s.axes) out += csv_cell(axis.name) + ",";
  out += csv_cell(s.metric) + ",low,high,n,best,outcomes\n";
  for (const Configuration& c : s.configurations) {
    for (const std::string& value : c.place) out += csv_cell(value) + ",";
    const auto half = half_interval(c.values);
    out += (c.values.empty() ? "" : exact(c.mean())) + "," + (half ? exact(c.mean() - *half) : "") + "," +
           (half ? exact(c.mean() + *half) : "") + "," + std::to_string(c.values.size()) + "," + (c.best ? "1" : "0") +
           "," + csv_cell(c.outcomes()) + "\n";
  }
  return out;
}

std::string markdown(const Summary& s) {
  std::string out = markdown_table(list_rows(s), "---");
  if (const Rows grid = grid_rows(s); !grid.empty()) out += "\n" + s.metric + "\n\n" + markdown_table(grid, "---");
  return out + "\n" + notes(s) + "\n";
}

std::string text(const Summary& s) {
  std::string out = table(list_rows(s));
  if (const Rows grid = grid_rows(s); !grid.empty()) out += "\n" + s.metric + "\n" + table(grid);
  return out + notes(s) + "\n";
}

nlohmann::ordered_json json(const Summary& s) {
  using Json = nlohmann::ordered_json;
  Json configurations = Json::array();
  for (const Configuration& c : s.configurations) {
    Json place = Json::object(), values = Json::array(), outcomes = Json::array();
    for (size_t a = 0; a < s.axes.size(); ++a) place[s.axes[a].name] = c.place[a];
    for (const double value : c.values) values.push_back(json_number(value));
    for (const State& state : c.states)
      outcomes.push_back(state.outcome == Outcome::none ? "waiting" : name_of(state.outcome));
    Json one{{"place", place}, {"values", values}, {"outcomes", outcomes}, {"best", c.best}};
    if (!c.values.empty()) one["mean"] = json_number(c.mean());
    if (const auto half = half_interval(c.values)) {
      one["low"] = json_number(c.mean() - *half);
      one["high"] = json_number(c.mean() + *half);
    }
    configurations.push_back(std::move(one));
  }
  return {{"configurations", configurations}};
}

std::string number_text(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

}  // namespace lmx_cli::sweeps
