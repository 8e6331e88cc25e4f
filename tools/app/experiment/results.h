// The results of an experiment: its cells' numbers beside the paper's, and a verdict on each claim.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/experiment/judge.h"

namespace lmx_cli::experiments {

// The cells that differ only in averaged axes: a row of the table.
struct Row {
  std::vector<const Cell*> cells;
  std::vector<std::string> labels;  // of the axes that are not averaged
  const Cell& first() const { return *cells[0]; }
};

// The paper's entry for a cell that does not fit into memory.
inline constexpr const char* kOutOfMemory = "out of memory";

struct Results {
  const Experiment& experiment;
  const Scale& scale;
  const std::vector<Cell>& cells;
  std::map<std::string, CellResult> by_cell;  // results of the finished cells
  std::map<std::string, std::string> failed;  // cell -> why
  std::vector<Row> rows;
  std::vector<Verdict> verdicts = {};
  std::map<std::string, TTest> paper_tests = {};  // measure/row -> comparison with a number of the paper
  size_t comparisons = 0;                         // tests of claims and of the paper's numbers that depend on chance
};

// Call it before anything runs. UserError with its position: a formula that cannot be evaluated, a paper's number for a
// cell that does not exist.
void check_formulas(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells);

// Computes rows and verdicts from the results of the cells.
Results judge(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
              std::map<std::string, CellResult> by_cell, std::map<std::string, std::string> failed);

// Returns the values of `measure` in the cells of a row that have it; empty if none has.
std::vector<Sample> samples_of(const Results& results, const Row& row, const Measure& measure, bool formula = false);
// Returns how many runs of a row have diverged.
size_t diverged_runs(const Results& results, const Row& row);
// Returns whether a row has no planned number because the planner finds that it runs out of memory.
bool out_of_memory(const Results& results, const Row& row, const Measure& measure);
// Returns whether the number of a row is fixed by the paper's own (is_fixed()).
bool fixed(const Results& results, const Row& row, const Measure& measure);
// Returns whether all numbers of a measure that the rows have are planned.
bool all_planned(const Results& results, const Measure& measure);
// Returns the paper's number for a row, or "diverged" or "out of memory"; empty if it has none.
std::string paper_text(const Row& row, const Measure& measure);

// Why a row has no number: "diverged", "out of memory"; "": it has one, or has not run.
std::string outcome_of(const Measure& measure, const Results& results, const Row& row);
// Returns whether the paper's numbers mean the same as those of these cells. Times count if the ranks are processes.
bool is_comparable(const Measure& measure, const Results& results);
// Returns the test of a row's mean against the paper's number. Nothing: only one run shows a number that depends on
// chance, or there is nothing to compare.
std::optional<TTest> paper_test(const Results& results, const Row& row, const Measure& measure);

// Returns the unknown setting that decides the paper's numbers of a row; empty if there is none.
std::string dependence(const Results& results, const Row& row);

// How many of the paper's times the planner explains, and how many a model without any communication explains that has
// the same anchors. Cells that an anchor fixes, or that depend on an unknown setting, do not count.
struct Explained {
  size_t cells = 0, by_planner = 0, without_network = 0;
};
Explained explained_times(const Results& results);

std::string markdown(const Results& results);
// The same with aligned columns, as wide as the terminal.
std::string text(const Results& results);
// A paragraph about the numbers that are planned: the machine, and the factors that the paper's cells have set. Empty
// if nothing is planned.
std::string planned_note(const Results& results);
std::string json(const Results& results);
std::string figure_svg(const Results& results, const std::map<std::string, std::vector<RunRecord>>& records);

}  // namespace lmx_cli::experiments
