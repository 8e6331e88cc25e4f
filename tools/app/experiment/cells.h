// The cells of an experiment: each a recipe, composed and checked before any of them runs.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/experiment/experiment.h"
#include "app/experiment/expression.h"
#include "app/jobs/cores.h"
#include "base/text.h"

namespace lmx_cli::experiments {

struct Cell {
  std::string id;                                          // its axis values: "dense-24"; or "types"
  std::vector<std::pair<std::string, std::string>> place;  // axis, value
  bool runs = true;                                        // false: formulas alone
  bool types = false;                                      // counts the text's words instead of training
  std::map<std::string, double> variables;                 // axis values that are numbers, and the file's variables
  std::vector<std::string> overrides;
  std::string recipe_file;
  lmx::Node composed;  // the recipe as its files say it, and
  std::string yaml;    // with every default, as it runs; without run.dir
  jobs::Demand demand;
  std::string same_as;  // an earlier cell with the same recipe, whose run is this one's too; "": none

  const std::string* value(const std::string& axis) const;
};

// `more`: overrides of every cell, after its own. UserError with the place in the experiment's file: unknown axes and
// values, formulas, whatever `lmx config` finds. Plugins must have been loaded.
std::vector<Cell> make_cells(const Experiment& experiment, const Scale& scale, const std::vector<std::string>& more);

// A map `axis: value` or `axis: [values]`: true for a cell at one of them. UserError: unknown axis or value.
bool chosen(const Experiment& experiment, const Cell& cell, const lmx::Node& choice, const std::string& path);

// The formula for a cell: `formula` itself, or where it is a map `axis: {value: formula}` the cell's; null: none there.
const lmx::Node* formula_for(const Experiment& experiment, const Cell& cell, const lmx::Node& formula,
                             const std::string& path);

// Axis values and variables of one cell.
class CellScope : public Scope {
 public:
  explicit CellScope(const Cell& cell) : cell_(cell) {}
  double variable(const std::string& name) const override;
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override;

 private:
  const Cell& cell_;
};

// As the table shows it: `digits` significant ones, thousands apart; "-" for NaN.
std::string number_text(double value, int64_t digits);
// Shortest text that reads back, integers without a point: for overrides.
std::string plain_number(double value);

}  // namespace lmx_cli::experiments
