// figure.svg: cells as points or bars, their records as curves, formulas as lines.
#include <algorithm>
#include <cmath>
#include <map>

#include "app/experiment/results.h"
#include "app/report/chart.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

std::string label_of(const Layer& layer, const std::string& own) {
  return layer.label + (layer.label.empty() || own.empty() ? "" : " ") + own;
}

// The names of one row: those of its first cell, and the means of its measures.
class RowScope final : public CellScope {
 public:
  RowScope(const Results& results, const Row& row) : CellScope(row.first()), results_(results), row_(row) {}
  double variable(const std::string& name) const override {
    const Measure* m = results_.experiment.measure(name);
    return m ? mean(samples_of(results_, row_, *m)) : CellScope::variable(name);
  }

 private:
  const Results& results_;
  const Row& row_;
};

class LineScope final : public Scope {
 public:
  LineScope(const Scope& outer, double x) : outer_(outer), x_(x) {}
  double variable(const std::string& name) const override { return name == "x" ? x_ : outer_.variable(name); }
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override {
    return outer_.select(measure, selection, axis);
  }

 private:
  const Scope& outer_;
  double x_;
};

class FigureMaker {
 public:
  FigureMaker(const Results& results, const std::map<std::string, std::vector<RunRecord>>& records)
      : results_(results), records_(records), scope_(results.experiment, results.cells, results.by_cell) {}

  Chart make() {
    const Figure& f = results_.experiment.figure;
    chart_ = {f.title, f.x_title, f.y_title, f.log_x, f.log_y, {}, {}};
    for (const Layer& layer : f.layers) {
      try {
        add(layer);
      } catch (const UserError&) {
        // check_formulas() has evaluated all formulas, so this one refers to a cell that has not run or has diverged.
        if (records_.empty()) throw;
      }
    }
    return chart_;
  }

 private:
  void add(const Layer& layer) {
    if (layer.kind == "cells") add_cells(layer);
    if (layer.kind == "records") add_records(layer);
    if (layer.kind == "line") add_line(layer);
    if (layer.kind == "bars") add_bars(layer);
    if (layer.kind == "paper") add_paper(layer);
  }
  bool drawn(const Layer& layer, const Cell& cell) const {
    return chosen(results_.experiment, cell, layer.only, layer.path + ".only");
  }
  // Returns the series with a label; creates it if it is new.
  ChartSeries& series(const std::string& label) {
    for (ChartSeries& s : chart_.series)
      if (s.label == label) return s;
    chart_.series.push_back({label, {}, true, true, false});
    return chart_.series.back();
  }
  std::string by(const Layer& layer, const Cell& cell) const {
    const std::string* label = layer.by.empty() ? nullptr : cell.value(layer.by);
    return label ? *label : "";
  }
  // The label of a row's series: "planned" if its number is the planner's.
  std::string series_of(const Layer& layer, const Row& row) const {
    const std::vector<std::string> names = names_in(layer.y.text);
    const bool planned = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const Measure* m = results_.experiment.measure(name);
      return m && origin_of(*m, row.first()) == Origin::planned;
    });
    const std::string label = label_of(layer, by(layer, row.first()));
    return planned ? label + (label.empty() ? "planned" : " (planned)") : label;
  }
  double spread_of(const Layer& layer, const Row& row) const {
    const Measure* m = results_.experiment.measure(layer.y.text);  // null for a formula
    return m ? spread(samples_of(results_, row, *m)) : 0;
  }

  void add_cells(const Layer& layer) {
    for (const Row& row : results_.rows) {
      if (!drawn(layer, row.first())) continue;
      const RowScope names(results_, row);
      const double x = evaluate(layer.x, layer.path + ".x", names), y = evaluate(layer.y, layer.path + ".y", names);
      if (std::isnan(y)) continue;
      series(series_of(layer, row))
          .points.push_back({x, y, spread_of(layer, row), str(row.first().id, ": ", number_text(y, 4))});
    }
  }

  // Adds the mean over the row's cells at each x.
  void add_records(const Layer& layer) {
    std::map<std::string, std::map<double, std::vector<Sample>>> curves;
    std::vector<std::string> order;
    for (const Cell& cell : results_.cells) {
      const auto found = records_.find(cell.id);
      const bool of_types = layer.split == "types" || layer.split == "fit";
      if (found == records_.end() || cell.types != of_types || !drawn(layer, cell)) continue;
      const std::string label = label_of(layer, by(layer, cell));
      if (!curves.contains(label)) order.push_back(label);
      for (const RunRecord& r : found->second) {
        if (r.split != layer.split) continue;
        const double x = layer.x_key == "step" ? static_cast<double>(r.step) : r.at(layer.x_key, NAN);
        if (std::isfinite(x)) curves[label][x].push_back({x, r.at(layer.y_key, NAN)});
      }
    }
    for (const std::string& label : order)
      for (const auto& [x, samples] : curves[label])
        series(label).points.push_back(
            {x, mean(samples), spread(samples), label + ": " + number_text(mean(samples), 4)});
  }

  void add_line(const Layer& layer) {
    if (layer.x.kind != Node::Kind::list || layer.x.items.size() != 2)
      throw UserError(str(to_string(layer.x.mark), ": ", layer.path, ".x: expected [from, to]"));
    const double from = evaluate(layer.x.items[0], layer.path + ".x.0", scope_);
    const double to = evaluate(layer.x.items[1], layer.path + ".x.1", scope_);
    ChartSeries line{layer.label, {}, false, true, true};
    constexpr int kLineParts = 48;
    for (int i = 0; i <= kLineParts; ++i) {
      const double t = static_cast<double>(i) / kLineParts;
      const double x = chart_.log_x ? from * std::pow(to / from, t) : from + (to - from) * t;
      line.points.push_back({x, evaluate(layer.y, layer.path + ".y", LineScope(scope_, x)), 0, ""});
    }
    chart_.series.push_back(std::move(line));
  }

  void add_bars(const Layer& layer) {
    const Axis* axis = results_.experiment.axis(layer.x.text);
    if (!axis)
      throw UserError(str(to_string(layer.x.mark), ": ", layer.path, ".x: there is no axis '", layer.x.text, "'"));
    for (const AxisValue& value : axis->values) chart_.names.push_back(value.label);
    for (const Row& row : results_.rows) {
      if (!drawn(layer, row.first())) continue;
      const double y = evaluate(layer.y, layer.path + ".y", RowScope(results_, row));
      ChartSeries& bars = series(series_of(layer, row));
      bars.points.resize(chart_.names.size(), {0, NAN, 0, ""});
      const auto place =
          std::find(chart_.names.begin(), chart_.names.end(), *row.first().value(axis->id)) - chart_.names.begin();
      bars.points[static_cast<size_t>(place)] = {static_cast<double>(place), y, spread_of(layer, row),
                                                 str(row.first().id, ": ", number_text(y, 4))};
    }
  }

  // Adds the paper's numbers of a measure, without a line between them.
  void add_paper(const Layer& layer) {
    const Measure* m = results_.experiment.measure(layer.y.text);
    if (!m)
      throw UserError(str(to_string(layer.y.mark), ": ", layer.path, ".y: there is no measure '", layer.y.text, "'"));
    for (const Row& row : results_.rows) {
      const std::optional<double> number = parse_double(paper_text(row, *m));
      if (!number || !drawn(layer, row.first())) continue;
      const double x = evaluate(layer.x, layer.path + ".x", CellScope(row.first()));
      const std::string own = by(layer, row.first());
      ChartSeries& points =
          series(layer.label.empty() ? own + (own.empty() ? "" : ", ") + "paper" : label_of(layer, own));
      points.line = false;
      points.points.push_back({x, *number, 0, str(row.first().id, ", paper: ", number_text(*number, 4))});
    }
  }

  const Results& results_;
  const std::map<std::string, std::vector<RunRecord>>& records_;
  ResultScope scope_;
  Chart chart_;
};

}  // namespace

std::string figure_svg(const Results& results, const std::map<std::string, std::vector<RunRecord>>& records) {
  return svg(FigureMaker(results, records).make());
}

}  // namespace lmx::app::experiment
