// The cells of an experiment. Each is a recipe that is composed and checked before any of them runs.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/experiment/experiment.h"
#include "app/experiment/expression.h"
#include "app/jobs/launcher.h"
#include "app/jobs/progress.h"
#include "base/text.h"

namespace lmx::app::experiment {

struct Cell {
  std::string id;                                          // the axis values: "dense-24"; or "types"
  std::vector<std::pair<std::string, std::string>> place;  // axis, value
  bool runs = true;                                        // false: the cell only has formulas
  bool planned = false;                                    // the planner can compute its measures
  bool launched = false;                                   // its ranks are processes, so that its times count
  bool types = false;                                      // counts the text's words instead of training
  std::map<std::string, double> variables;  // axis values that are numbers, and the variables of the file
  std::vector<std::string> overrides;
  std::string recipe_file;
  Node composed;     // the recipe as in its files
  std::string yaml;  // the recipe with every default, as it runs; without run.dir
  jobs::Demand demand;
  jobs::Length length;
  int64_t ranks = 1;
  bool virtual_ranks = false;  // its ranks are threads of one process, so that its times mean nothing
  std::string same_as;         // an earlier cell with the same recipe, whose run this cell shares; "": none

  const std::string* value(const std::string& axis) const;
};

struct CellOptions {
  std::vector<std::string> overrides;  // of every cell, after the cell's own
  // The ranks are processes (--launcher): overrides `comm=virtual` of the file, also those of axis values, are left
  // out, and the variable `launched` is 1 instead of 0.
  bool launched = false;
};

// UserError with the position in the experiment's file: unknown
// axes or values, invalid formulas, errors that `lmx config` reports, ranks that are threads although the cells are
// launched. REQUIRES: plugins are loaded.
std::vector<Cell> make_cells(const Experiment& experiment, const Scale& scale, const CellOptions& options);

// Returns whether a cell is at one of the values of `choice`, a map `axis: value` or `axis: [values]`. UserError:
// unknown axis or value.
bool chosen(const Experiment& experiment, const Cell& cell, const Node& choice, const std::string& path);

// Returns the formula for a cell: `formula` itself or, if it is a map `axis: {value: formula}`, the formula for the
// cell's value; null if there is none.
const Node* formula_for(const Experiment& experiment, const Cell& cell, const Node& formula, const std::string& path);

// Replaces ${name} of axes and variables. Other names belong to the recipe and are left unchanged.
std::string filled(const Cell& cell, const std::string& text);

// The axis values and variables of one cell.
class CellScope : public Scope {
 public:
  explicit CellScope(const Cell& cell) : cell_(cell) {}
  double variable(const std::string& name) const override;
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override;

 private:
  const Cell& cell_;
};

// Formats a number for the table: `digits` significant digits, thousands separated; "-" for NaN.
std::string number_text(double value, int64_t digits);
// Formats a number for overrides: the shortest text that is read back exactly, integers without a decimal point.
std::string plain_number(double value);

}  // namespace lmx::app::experiment
