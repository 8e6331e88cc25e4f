// journal.jsonl: the cells of an experiment that are done or have diverged, and the results of evaluations on other
// splits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/records/records.h"

namespace lmx_cli::experiments {

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

}  // namespace lmx_cli::experiments
