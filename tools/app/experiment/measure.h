// What a cell's run came to: numbers of its records, formulas over them, and the formulas that they should fulfil.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/experiment/cells.h"
#include "app/records/run_records.h"

namespace lmx_cli::experiments {

// The record of how a cell's run ended: 1 where it diverged, else 0.
inline constexpr const char* kOutcome = "outcome";
inline constexpr const char* kDiverged = "diverged";

struct CellResult {
  std::map<std::string, double> values;    // by measure; of a cell that does not run, its formulas
  std::map<std::string, double> formulas;  // of measures that have one
  bool diverged = false;                   // then only measures of split outcome have values
};

// The formula that a cell's measure should fulfil; null: none.
const lmx::Node* formula_of(const Experiment& experiment, const Measure& measure, const Cell& cell);
// True where `cell` has this measure.
bool applies(const Experiment& experiment, const Measure& measure, const Cell& cell);

// Of every cell that has records, and of those that do not run. UserError: a key that no record has, with the nearest.
std::map<std::string, CellResult> measure_cells(const Experiment& experiment, const std::vector<Cell>& cells,
                                                const std::map<std::string, std::vector<RunRecord>>& records);
// The same before anything has run, every measured number taken as 1: whether all formulas can be had.
std::map<std::string, CellResult> measure_nothing(const Experiment& experiment, const std::vector<Cell>& cells);

// Formulas that compare cells: those of `checks` and of lines in the figure.
class ResultScope : public Scope {
 public:
  // The runs of one row (cells that differ in averaged axes only) that a formula has asked for.
  struct Use {
    std::string row;
    std::vector<std::string> cells;
    bool chance;  // in what was measured: its class is quality or hardware
  };
  ResultScope(const Experiment& experiment, const std::vector<Cell>& cells,
              const std::map<std::string, CellResult>& results)
      : experiment_(experiment), cells_(cells), results_(results) {}
  // A constant: a variable that is the same in all cells.
  double variable(const std::string& name) const override;
  // Where a selection leaves cells that run and cells that do not, the latter are left out.
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override;
  // The same, which notes what it is asked for; `uses` must outlive it.
  ResultScope recording(std::vector<Use>& uses) const;
  // The same without a run, wherever its row has others.
  ResultScope without(const std::string& cell) const;

 private:
  std::vector<Use> rows_of(const Measure& measure, const std::vector<const Cell*>& cells) const;
  std::vector<const Cell*> choose(const std::string& measure, const std::vector<std::string>& selection) const;
  void check_closed(const std::string& measure, const std::vector<const Cell*>& cells, const std::string& axis) const;

  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  const std::map<std::string, CellResult>& results_;
  std::vector<Use>* uses_ = nullptr;
  std::string left_out_;
};

// The values of the axes that are not averaged, "dense-24".
std::string row_of(const Experiment& experiment, const Cell& cell);

}  // namespace lmx_cli::experiments
