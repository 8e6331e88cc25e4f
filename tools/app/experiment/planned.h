// Numbers of cells that the planner computes (`lmx plan`), without a run, a corpus or the machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/experiment/cells.h"

namespace lmx_cli::experiments {

struct PlannedCell {
  std::map<std::string, double> columns;  // by the keys of `lmx plan --json`; classes of memory as "memory/gradients"
  bool out_of_memory = false;             // the columns of times mean nothing then
  bool anchor = false;                    // the paper's number of this cell sets the speed of the device
  bool base = false;                      // its efficiency is 1 by definition
  double speed = 1;                       // factor of all times of computation, from the anchor
  // The columns that follow from the time of a step, by a model without any communication that has the same anchors:
  // what the computation alone explains.
  std::map<std::string, double> without_network;
};

// Returns the formula for the expected value of a cell's measure; null if there is none.
const lmx::Node* formula_of(const Experiment& experiment, const Measure& measure, const Cell& cell);
// Returns whether `cell` has this measure.
bool applies(const Experiment& experiment, const Measure& measure, const Cell& cell);

// The origin of a number in a cell.
enum class Origin { measured, planned, formula };
// REQUIRES: the cell has the measure (applies()).
Origin origin_of(const Measure& measure, const Cell& cell);

// Returns whether a cell's number is fixed by the anchor or by the definition of efficiency, so that it is no evidence.
bool is_fixed(const Experiment& experiment, const Measure& measure, const PlannedCell& cell);
// Returns whether a measure of time has no value in a cell because its ranks are threads that share the cores.
// REQUIRES: applies().
bool lacks_time(const Measure& measure, const Cell& cell);
// Returns whether a measure is a time or follows from one, so that it has no number if the cell runs out of memory.
bool needs_memory(const Experiment& experiment, const Measure& measure);

// Returns the machines of the cells: "ott_p100, ott_v100".
std::string machines_of(const PlanConfig& plan, const std::vector<Cell>& cells);

// Plans the cells of a scale; empty if no measure is planned there. UserError with the position in the experiment's
// file: a machine or column that does not exist, an anchor that no speed reaches, the errors of lmx::plan::make_plan().
std::map<std::string, PlannedCell> plan_cells(const Experiment& experiment, const Scale& scale,
                                              const std::vector<Cell>& cells);

}  // namespace lmx_cli::experiments
