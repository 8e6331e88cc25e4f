// What a cell's run came to: numbers of its records, formulas over them, and the formulas that they should fulfil.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../run_records.h"
#include "cells.h"

namespace lmx_cli::experiments {

struct CellResult {
  std::map<std::string, double> values;    // by measure; of a cell that does not run, its formulas
  std::map<std::string, double> formulas;  // of measures that have one
};

// True where `cell` has this measure.
bool applies(const Experiment& experiment, const Measure& measure, const Cell& cell);

// UserError: a key that no record has, with the nearest. `records` null: nothing has run yet; every measured number is
// taken as 1, so that formulas can be checked.
CellResult measure_cell(const Experiment& experiment, const Cell& cell, const std::vector<RunRecord>* records);

// Formulas that compare cells: `checks` and the figure.
class ResultScope : public Scope {
 public:
  ResultScope(const Experiment& experiment, const std::vector<Cell>& cells,
              const std::map<std::string, CellResult>& results)
      : experiment_(experiment), cells_(cells), results_(results) {}
  // A constant: a variable that is the same in all cells.
  double variable(const std::string& name) const override;
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override;

 private:
  std::vector<const Cell*> choose(const std::string& measure, const std::vector<std::string>& selection) const;
  void check_closed(const std::string& measure, const std::vector<const Cell*>& cells, const std::string& axis) const;

  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  const std::map<std::string, CellResult>& results_;
};

}  // namespace lmx_cli::experiments
