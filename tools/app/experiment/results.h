// The results of an experiment: its cells' numbers beside the paper's, in tables and on pages, and a verdict on each
// claim.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/experiment/break_even.h"
#include "app/experiment/estimate.h"

namespace lmx::app::experiment {

// The verdict on one claim of an experiment.

inline constexpr const char* kReproduced = "reproduced";
inline constexpr const char* kRefuted = "refuted";
inline constexpr const char* kUndecided = "undecided";
inline constexpr const char* kByConstruction = "by construction";
inline constexpr const char* kNotComparable = "not comparable";
inline constexpr const char* kNotMeasured = "not measured";
// A plan cannot reproduce or refute a measurement: it agrees with it or misses it.
inline constexpr const char* kPlannerAgrees = "the planner agrees";
inline constexpr const char* kPlannerMisses = "the planner misses";  // perhaps followed by how far

struct Verdict {
  std::string claim, kind, paper, measured, expected;
  std::string verdict;  // one of the above, or "depends on ..."
  std::string reason;
  std::vector<Estimate> estimates = {};  // of `value`, or of each formula of `ascending`
  bool planned = false;                  // numbers of the planner are part of it
  std::optional<TTest> test = {};        // nothing: no test decides the verdict
  bool fails() const { return verdict == kRefuted || verdict.starts_with(kPlannerMisses); }
};

// Compares the numbers of a claim. If a test decides the verdict, the verdict is empty until conclude().
// UserError: a formula that cannot be evaluated.
Verdict compare(const Check& check, const ResultScope& scope);
// The same, but the verdict is `not measured` if a formula cannot be evaluated.
Verdict judge(const Check& check, const ResultScope& scope);
// Gives the verdict that the adjusted test decides. `comparisons`: how many tests of the table depend on chance.
void conclude(Verdict& verdict, const Check& check, size_t comparisons);

// "p = 0.12 after correction for 9 comparisons".
std::string significance_text(const TTest& test, size_t comparisons);
// "2.5 %".
std::string percent_text(double fraction);
// |value / expected - 1|; 0 if both are equal.
double distance(double value, double expected);

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
  std::set<std::string> devices = {};             // Finished::devices()
  std::vector<BreakEvenRow> break_even = {};
};

// Call it before anything runs. UserError with its position: a formula that cannot be evaluated, a paper's number for a
// cell that does not exist.
void check_formulas(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells);

// Computes rows and verdicts from the results of the cells.
Results judge(const Experiment& experiment, const Scale& scale, const std::vector<Cell>& cells,
              std::map<std::string, CellResult> by_cell, std::map<std::string, std::string> failed);

// Returns the number of a measure in a cell; nothing if the cell has none.
std::optional<double> value_of(const Results& results, const Cell& cell, const std::string& measure,
                               bool formula = false);
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
// A sentence with the GPUs or processors on which cells have run; empty if none has.
std::string devices_note(const Results& results);
// A paragraph about the numbers that are planned: the machine, and the factors that the paper's cells have set. Empty
// if nothing is planned.
std::string planned_note(const Results& results);
std::string json(const Results& results);
std::string csv(const Results& results);  // a line for each cell: its place, state and measures
std::string figure_svg(const Results& results, const std::map<std::string, std::vector<RunRecord>>& records);

// Each number of the paper beside lmx's own, in tables and on pages.

struct Comparison {
  const Measure* measure;
  std::string cell, paper, ours;
  std::string origin;   // measured, virtual ranks, planned, formula; "": there is no number
  std::string off;      // relative distance with its sign: "+2.5 %"
  std::string verdict;  // within, outside, undecided, set (by the planner's anchor), depends on ..., not comparable,
                        // not run
};
std::vector<Comparison> comparisons(const Results& results);

// The cells that are outside their tolerance, and the claims that are refuted, a line each.
std::vector<std::string> outside(const Results& results);
// Returns whether any claim or number has been judged.
bool anything_judged(const Results& results);

// Tables of the comparisons and of the verdicts on claims. `only_planned`: without everything that depends on a run, so
// that the result is the same on every machine.
std::string comparison_markdown(const Results& results, bool only_planned);

// A part of a page that lmx writes:
//
//   <!-- experiment ID SCALE planned -->      the planned numbers
//   <!-- experiment ID SCALE -->              all numbers, if all cells have run
//   <!-- end -->
struct Block {
  std::string id, scale;
  bool only_planned = false;
  size_t begin = 0, end = 0;  // of its content in the page
};
// UserError: a block with other words, or without its end. `file`: for messages.
std::vector<Block> blocks_of(const std::string& page, const std::string& file);

}  // namespace lmx::app::experiment
