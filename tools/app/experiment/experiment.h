// experiments/<paper>/<name>.yaml: the claims of a paper, the runs that test them, and the rules that evaluate these
// runs.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx::app::experiment {

// "FILE:LINE:COLUMN: PATH: ", the start of a message about a value of an experiment.
std::string at(const Node& node, const std::string& path);

// Whether an optional part of an experiment's file is there.
inline bool given(const Node& node) {
  return node.kind != Node::Kind::null;
}

// The options of `lmx plan`. A number is a formula of the cell, or `axis: {value: formula}`.
struct PlanConfig {
  bool given = false;
  std::string machine, collectives, types;          // ${axis} and ${variable} are those of the cell
  Node ranks, epoch_tokens, spread, fill, overlap;  // formulas
  Node overrides;                                   // list; after the cell's own
  Node base;                                        // map: axis -> value; the cell whose efficiency is 1
  Mark mark;
  std::string path;  // "plan" or "scales.paper.plan"
  void fields(Fields& f);
};

// How close a measured value must be (classes of the papers' numbers).
inline const std::vector<std::string> kClasses{"exact", "formula", "shape", "quality", "planned", "hardware"};

// A desktop computer: the default scale, whose time is planned for the cores of this computer.
inline constexpr const char* kDesk = "desk";
// The paper's own size: its numbers mean the same there, and each rank has its own device.
inline constexpr const char* kPaper = "paper";

// One size at which the experiment can run. Any name is possible. At scales other than these two, cells run on one
// device.
struct Scale {
  std::string id;
  std::string recipe;  // relative to the experiment's file; ${axis} is a cell's value
  Node overrides;      // list; for every cell, before those of the axes
  Node variables;      // map: name -> number or formula
  Node cells;          // replaces the experiment's own `cells`
  Node plan_tree;
  PlanConfig plan;  // replaces the experiment's own `plan`
  Mark mark;
  void fields(Fields& f);
  // Whether all ranks of a cell share one device, as on a machine with one GPU.
  bool one_device() const { return id != kDesk && id != kPaper; }
};

struct AxisValue {
  std::string label;
  std::vector<Node> overrides;
};
struct Axis {
  std::string id;
  std::vector<AxisValue> values;
};

// A number of a cell: read from the records of its run, computed by the planner, or computed from other measures of the
// same cell.
struct Measure {
  std::string id, title, unit;
  std::string split = "valid", key, take = "last", ranks = "first";
  Node where;  // map: key -> number or formula; only records with these numbers count
  double divide = 1;
  int64_t digits = 4, deal = 0;
  Node value;        // formula, used instead of a key
  std::string plan;  // a column of the planner: the number of cells that do not run or, without a key, of all cells
  Node formula;      // expected value: a formula, or `axis: {value: formula}`; also used if the cell does not run
  std::string kind = "quality";
  double within = -1;  // relative; below 0: the default of the class
  Node paper;          // map: cell -> the paper's number
  std::string comparable = "paper";
  std::string reason;
  Node only;  // map: axis -> values; the cells that have this measure
  Mark mark;
  // Whether cells that do not run can have a planned number, and whether all numbers are planned: as `plan` says, or
  // because `value` is a formula over such measures alone.
  bool can_be_planned = false, only_planned = false;
  void fields(Fields& f);
  void check(const std::string& where_it_is) const;
  double tolerance() const;
};

struct Check {
  std::string claim, kind = "shape", paper, incomparable, by_construction, depends_on, note;
  Node scale;  // one or a list; the scales at which the claim is judged; null: all
  Node value, expect, at_least, at_most, ascending, unless;
  double within = -1;
  std::string path;  // "checks.2", for messages
  void fields(Fields& f);
  void check(const std::string& where_it_is) const;
  bool judged_at(const std::string& scale_id) const;
  double tolerance() const;
};

// At which bandwidth the methods of an axis reach their loss sooner than one of them, the base (break_even.h).
struct BreakEven {
  struct Phase {
    double part = 0;                     // of a method's steps
    std::vector<std::string> overrides;  // of the plan of these steps, after those of the method
    void fields(Fields& f);
  };
  std::string axis, base, loss, recipe, machine;
  int64_t ranks = 0;
  std::vector<std::string> within;
  Node shorter, phases;
  std::map<std::string, double> parts;  // values of the axis that are shorter runs of the base: part of its steps
  std::map<std::string, std::vector<Phase>> phases_of;  // of methods whose steps differ in length
  Mark mark;
  void fields(Fields& f);
};

// One element of the figure: points of cells, curves of their records, a line of a formula in x, or the numbers of the
// paper.
struct Layer {
  std::string kind = "cells", label, by, split = "valid", x_key = "step", y_key = "ppl";
  Node x, y, only;
  std::string path;
  void fields(Fields& f);
};
struct Figure {
  std::string title, x_title, y_title;
  bool log_x = false, log_y = false;
  std::vector<Layer> layers;
};

// Unique words against tokens of the recipe's text, as `lmx data stats` counts them. It becomes an additional cell
// named `types`.
struct TypesCell {
  bool wanted = false;
  int64_t sequence_length = 20, max_tokens = 2'621'440, draws = 3;
  void fields(Fields& f);
};

struct Experiment {
  std::string id;    // "patwary2018/table3_memory"
  std::string file;  // its path
  std::string title, paper, place, question;
  std::vector<std::string> notes, average, evaluate, probe;
  bool paired = false;       // runs of different rows with equal values of the averaged axes belong together
  int64_t shards = 0;        // of the evaluations (EvalOptions::shards)
  int64_t mean_of_last = 0;  // number of checkpoints whose mean is also evaluated; 0: none
  std::vector<Scale> scales;
  Node overrides, variables, cells;
  Node depends_on;  // axis -> value -> the unknown setting that decides the paper's numbers of these cells
  PlanConfig plan;
  std::vector<Axis> axes;
  TypesCell types;
  std::vector<Measure> measures;
  std::vector<Check> checks;
  Figure figure;
  BreakEven break_even;  // without `axis`: none

  // The path of a file that this file names relative to itself.
  std::string path_of(const std::string& name) const;
  // The name of a shipped machine, or the path of a machine file.
  std::string machine(const std::string& name) const { return name.ends_with(".yaml") ? path_of(name) : name; }
  const Scale& scale(const std::string& id) const;  // UserError: none; the message suggests the nearest
  const Axis* axis(const std::string& id) const;
  const Measure* measure(const std::string& id) const;
  bool averages(const std::string& axis_id) const;
};

// The plan of a scale: its own, or the experiment's.
inline const PlanConfig& plan_config(const Experiment& experiment, const Scale& scale) {
  return scale.plan.given ? scale.plan : experiment.plan;
}

// A part of read_experiment(). REQUIRES: the axes and measures of `e` have been read.
BreakEven read_break_even(const Node& tree, const Experiment& e);

// UserError with file:line:column: unknown keys, wrong types, settings that contradict each other.
Experiment read_experiment(const std::string& file);

// Returns the experiments in `experiments/` of the current folder, of the source tree or of the installation of this
// program: {id, file}, sorted.
std::vector<std::pair<std::string, std::string>> find_experiments();
// Returns the file for a name: a path, an id, or the last part of exactly one id. UserError: none; the message suggests
// the nearest.
std::string experiment_file(const std::string& name);

}  // namespace lmx::app::experiment
