// journal.jsonl: which cells of an experiment are done, or have diverged, and what evaluations on other splits gave.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/records/run_records.h"

namespace lmx_cli::experiments {

class Journal {
 public:
  struct Entry {
    double seconds = 0;                  // of this program's own waiting for the cell, over all of its starts
    std::vector<RunRecord> evaluations;  // one a split
    std::string diverged = {};           // why its run ended as diverged; "": it is done
  };

  // Reads what is there; a half-written last line is dropped.
  explicit Journal(std::string path);
  const Entry* find(const std::string& cell) const;
  // On disk when it returns. RunError: a full disk.
  void add(const std::string& cell, const Entry& entry);

 private:
  std::string path_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lmx_cli::experiments
