// Each number of the paper beside lmx's own, in tables and on pages.
#pragma once

#include <string>
#include <vector>

#include "app/experiment/results.h"

namespace lmx_cli::experiments {

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

}  // namespace lmx_cli::experiments
