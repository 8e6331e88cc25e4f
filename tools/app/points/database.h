// journal.sqlite: the journal's events and the state of each point, as tables. Rebuilt from journal.jsonl if it is
// missing, damaged or incomplete. lmx itself does not read it; it is for users and their programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/points/plan.h"

namespace lmx_cli::sweeps {

struct State;

class Database {
 public:
  // `events`: the lines of the journal. Problems with the file or its disk only cause a warning: the sweep continues
  // without the database.
  Database(const Plan& plan, const std::string& path, const std::vector<std::string>& events,
           const std::vector<State>& states);
  ~Database();
  // Adds a line of the journal and updates the points that it changed.
  void add(const std::string& event, const std::vector<size_t>& points, const std::vector<State>& states);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx_cli::sweeps
