// The cells of an experiment that are done, read from its folder:
//
//   <out>/cells/ID.yaml      the cell's recipe with every default, as it runs
//   <out>/cells/ID/          its run (docs/run-files.md); ID.log: the output of the run
//   <out>/journal.jsonl      one line per finished cell
#pragma once

#include <set>
#include <string>
#include <vector>

#include "app/experiment/cells.h"
#include "app/experiment/journal.h"
#include "app/records/records.h"

namespace lmx_cli::experiments {

// The record of how a cell's run ended: 1 if it diverged, otherwise 0.
inline constexpr const char* kOutcome = "outcome";
inline constexpr const char* kDiverged = "diverged";

class Finished {
 public:
  // `cells` must outlive it. UserError: a damaged journal, or `out` contains a cell that was run with another recipe.
  Finished(const std::vector<Cell>& cells, std::string out);
  const std::string& out() const { return out_; }
  // Returns the cell whose run this one shares.
  const Cell& source(const Cell& cell) const;
  std::string folder(const Cell& cell) const { return out_ + "/cells/" + source(cell).id; }
  std::string recipe(const Cell& cell) const { return folder(cell) + ".yaml"; }
  std::string log(const Cell& cell) const { return folder(cell) + ".log"; }
  bool done(const Cell& cell) const { return journal_.find(source(cell).id) != nullptr; }
  void add(const Cell& cell, const Journal::Entry& entry) { journal_.add(cell.id, entry); }
  // Returns the records of a finished cell. They include its evaluations on other splits, and whether its run diverged.
  std::vector<RunRecord> records(const Cell& cell) const;
  // The names of the GPUs or processors on which the finished cells have run; those of a resumed run's last start.
  std::set<std::string> devices() const;
  // The records of all finished cells that run, by the cell's id.
  std::map<std::string, std::vector<RunRecord>> all_records() const;

 private:
  void check_recipes() const;

  const std::vector<Cell>& cells_;
  std::string out_;
  Journal journal_;
};

}  // namespace lmx_cli::experiments
