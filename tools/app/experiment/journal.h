// The cells of an experiment that are done, read from its folder:
//
//   <out>/cells/ID.yaml      the cell's recipe with every default, as it runs
//   <out>/cells/ID/          its run (docs/run-files.md); ID.log: the output of the run
//   <out>/journal.jsonl      one line per finished cell
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/experiment/cells.h"
#include "app/records/records.h"

namespace lmx::app::experiment {

// journal.jsonl: the cells that are done or have diverged, and the results of evaluations on other splits.
class Journal {
 public:
  struct Entry {
    double seconds = 0;                  // time that this program waited for the cell, over all of its starts
    std::vector<RunRecord> evaluations;  // one per split
    std::string diverged = {};           // why its run diverged; "": the run is done
  };

  // Reads an existing journal; an incomplete last line is dropped.
  explicit Journal(std::string path);
  const Entry* find(const std::string& cell) const;
  // The entry is on disk when it returns. RunError: a full disk.
  void add(const std::string& cell, const Entry& entry);

 private:
  std::string path_;
  std::map<std::string, Entry> entries_;
};

// The record of how a cell's run ended: 1 if it diverged, otherwise 0.
inline constexpr const char* kOutcome = "outcome";
inline constexpr const char* kDiverged = "diverged";

class Finished {
 public:
  // `cells` must outlive it. UserError: a damaged journal, or `out` contains a cell that was run with another recipe.
  Finished(const std::vector<Cell>& cells, std::string out);
  const std::string& out() const { return out_; }
  const std::vector<Cell>& cells() const { return cells_; }
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

}  // namespace lmx::app::experiment
