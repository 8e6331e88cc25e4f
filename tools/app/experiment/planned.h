// Numbers of cells that the planner computes (`lmx plan`), without a run, a corpus or the machine; and the time and the
// data that a scale of an experiment needs.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/experiment/cells.h"

namespace lmx::app::experiment {

struct PlannedCell {
  std::map<std::string, double> columns;  // by the keys of `lmx plan --json`; classes of memory as "memory/gradients"
  bool out_of_memory = false;             // the columns of times mean nothing then
  bool sets_speed = false;                // it is a known step of the machine, which sets the speed of the device
  bool base = false;                      // its efficiency is 1 by definition
  double speed = 1;                       // factor of all times of computation, from a known step
  // The columns that follow from the time of a step, by a model without any communication that has the same known
  // steps: what the computation alone explains.
  std::map<std::string, double> without_network;
};

// Returns the formula for the expected value of a cell's measure; null if there is none.
const Node* formula_of(const Experiment& experiment, const Measure& measure, const Cell& cell);
// Returns whether `cell` has this measure.
bool applies(const Experiment& experiment, const Measure& measure, const Cell& cell);

// The origin of a number in a cell.
enum class Origin { measured, planned, formula };
// REQUIRES: the cell has the measure (applies()).
Origin origin_of(const Measure& measure, const Cell& cell);

// Returns whether a cell's number is a known step or 1 by the definition of efficiency, so that it is no evidence.
bool is_fixed(const Experiment& experiment, const Measure& measure, const PlannedCell& cell);
// Returns whether a measure of time has no value in a cell because its ranks are threads that share the cores.
// REQUIRES: applies().
bool lacks_time(const Measure& measure, const Cell& cell);
// Returns whether a measure is a time or follows from one, so that it has no number if the cell runs out of memory.
bool needs_memory(const Experiment& experiment, const Measure& measure);

// Returns the machines of the cells: "ott_p100, ott_v100".
std::string machines_of(const PlanConfig& plan, const std::vector<Cell>& cells);

// Plans the cells of a scale; empty if no measure is planned there. UserError with the position in the experiment's
// file: a machine or column that does not exist, the errors of plan::make_plan().
std::map<std::string, PlannedCell> plan_cells(const Experiment& experiment, const Scale& scale,
                                              const std::vector<Cell>& cells);

// The checks of `data:` of cells, each made once, because most cells use the same text.
class DataChecks {
 public:
  struct Check {
    std::vector<std::string> findings;  // errors, such as a missing corpus
    double train_tokens =
        std::numeric_limits<double>::quiet_NaN();  // from a sample if they are not counted; NaN: not known
  };
  const Check& of(const Cell& cell);

 private:
  std::map<std::string, Check> checks_;
};

struct Needs {
  std::string experiment, scale, machine;  // machine: on which the time is planned
  size_t runs = 0, planned = 0;            // cells that train or count, and cells that only the planner computes
  int64_t ranks = 1;                       // the most of a cell
  double hours = 0;                        // of training, without evaluations, in the cells whose time is known
  size_t unknown = 0;                      // cells whose time is not known
  std::set<std::string> missing;           // data, with the way to get it
};

// Plans the time of the cells of a scale: on `machine` or, if it is empty, on the machine of the scale's plan, else on
// desk_10gbe (desk) or h100_node (other scales). At desk scale, a cell uses the cores of this computer, as many of them
// as its ranks have threads, each as fast as a core of the machine. At the paper's scale each rank has a device of its
// own; at other scales the ranks of a process share one, and compute one after the other. The arguments must outlive
// the object. `planned`: the result of plan_cells().
class TimePlan {
 public:
  TimePlan(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
           const std::map<std::string, PlannedCell>& planned, const std::string& machine, DataChecks& checks);
  // The machine, or the machines of the cells.
  const std::string& machine() const { return shown_; }
  // Hours of the training of a cell that runs; nothing if its length is not known, or if the planner refuses it.
  std::optional<double> hours(const Cell& cell) const;

 private:
  const Scale& scale_;
  const std::map<std::string, PlannedCell>& planned_;
  DataChecks& checks_;
  bool own_;  // the machine is that of the scale's plan
  std::string machine_, shown_;
};

// `machine`: as in needs_of(), which counts cells that cannot be planned as unknown. UserError: there is no such
// machine, or its file is wrong.
void require_machine(const Cell& cell, const std::string& machine);

// The time is that of the cells that run, one after the other, by TimePlan.
Needs needs_of(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
               const std::map<std::string, PlannedCell>& planned, const std::string& machine, DataChecks& checks);

// Returns the errors in the data of the cells with these ids that run, each once.
std::set<std::string> data_problems(const std::vector<Cell>& cells, const std::vector<std::string>& wanted,
                                    DataChecks& checks);

}  // namespace lmx::app::experiment
