// The results of a cell's run: numbers of its records, formulas over them, and the formulas that give the expected
// values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/experiment/cells.h"
#include "app/experiment/journal.h"
#include "app/experiment/planned.h"
#include "app/records/records.h"

namespace lmx::app::experiment {

struct CellResult {
  std::map<std::string, double> values;    // by measure; for a cell that does not run, the values of its formulas
  std::map<std::string, double> formulas;  // of measures that have one
  bool done = false;                       // its run has ended
  bool diverged = false;                   // then only measures of split `outcome` have values
  PlannedCell planned;                     // without columns if nothing is planned
};

// Measures all cells that have records, and all that do not run; `planned`: the result of plan_cells(). UserError: a
// key that no record has; the message suggests the nearest.
std::map<std::string, CellResult> measure_cells(const Experiment& experiment, const std::vector<Cell>& cells,
                                                const std::map<std::string, std::vector<RunRecord>>& records,
                                                const std::map<std::string, PlannedCell>& planned);
// The same before anything has run, with 1 for every measured and every planned number. Checks whether all formulas can
// be evaluated. UserError: a key that no record can have.
std::map<std::string, CellResult> measure_nothing(const Experiment& experiment, const std::vector<Cell>& cells);

// Formulas that compare cells: those of `checks` and of lines in the figure.
class ResultScope : public Scope {
 public:
  // The runs of one row (cells that differ only in averaged axes) that a formula has used.
  struct Use {
    std::string row;
    std::vector<std::string> cells, places;  // and their values of the averaged axes
    bool chance;                             // the measure depends on chance: its class is quality or hardware
    bool planned;                            // its number is planned; then `cells` is empty
  };
  ResultScope(const Experiment& experiment, const std::vector<Cell>& cells,
              const std::map<std::string, CellResult>& results)
      : experiment_(experiment), cells_(cells), results_(results) {}
  // Returns a constant: a variable with the same value in all cells.
  double variable(const std::string& name) const override;
  // Returns whether the ranks are processes, so that times are judged.
  bool launched() const { return !cells_.empty() && cells_[0].launched; }
  // Does not mix origins: if a selection contains measured cells, the others are left out; likewise if it contains
  // planned cells, those of formulas.
  std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                             const std::string& axis) const override;
  // Returns a copy that records its uses in `uses`, which must outlive it.
  ResultScope recording(std::vector<Use>& uses) const;
  // Returns a copy without these runs, in each row that has others.
  ResultScope without(const std::set<std::string>& cells) const;
  bool paired() const { return experiment_.paired; }

 private:
  std::vector<Use> rows_of(const Measure& measure, const std::vector<const Cell*>& cells) const;
  std::vector<const Cell*> choose(const std::string& measure, const std::vector<std::string>& selection) const;
  void check_closed(const std::string& measure, const std::vector<const Cell*>& cells, const std::string& axis) const;

  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  const std::map<std::string, CellResult>& results_;
  std::vector<Use>* uses_ = nullptr;
  std::set<std::string> left_out_;
};

// Returns the values of the axes that are not averaged, or of those that are: "dense-24".
std::string row_of(const Experiment& experiment, const Cell& cell, bool averaged = false);

}  // namespace lmx::app::experiment
