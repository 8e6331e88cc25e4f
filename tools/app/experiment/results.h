// What an experiment came to: its cells' numbers beside the paper's, and a verdict on each claim.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/experiment/judge.h"

namespace lmx_cli::experiments {

// The cells that differ in averaged axes only: a row of the table.
struct Row {
  std::vector<const Cell*> cells;
  std::vector<std::string> labels;  // of the axes that are not averaged
  const Cell& first() const { return *cells[0]; }
};

struct Results {
  const Experiment& experiment;
  const Scale& scale;
  const std::vector<Cell>& cells;
  std::map<std::string, CellResult> by_cell;  // of the finished ones
  std::map<std::string, std::string> failed;  // cell -> why
  std::vector<Row> rows;
  std::vector<Verdict> verdicts;
};

// UserError with its place: a formula that cannot be had, a paper's number for a cell that does not exist. To be called
// before anything runs.
void check_formulas(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells);

// Rows and verdicts, from what the cells measured.
Results judge(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
              std::map<std::string, CellResult> by_cell, std::map<std::string, std::string> failed);

// The number of `measure` in a row: over its cells that have it; no sample where none has.
std::vector<Sample> samples_of(const Results& results, const Row& row, const Measure& measure, bool formula = false);
// How many of a row's runs ended as diverged.
size_t diverged_runs(const Results& results, const Row& row);
// The paper's number for a row, or "diverged"; empty where it has none.
std::string paper_text(const Row& row, const Measure& measure);

std::string markdown(const Results& results);
std::string json(const Results& results);
std::string figure_svg(const Results& results, const std::map<std::string, std::vector<RunRecord>>& records);

}  // namespace lmx_cli::experiments
