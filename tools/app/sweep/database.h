// journal.sqlite: the journal's events and where each point stands, as tables. Made from journal.jsonl, whenever it is
// missing, damaged or behind; nothing reads it but people and their programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/sweep/plan.h"

namespace lmx_cli::sweeps {

struct State;

class Database {
 public:
  // `events`: the journal's lines. What is wrong with the file, or with its disk, is a warning: a sweep goes on
  // without.
  Database(const Plan& plan, const std::string& path, const std::vector<std::string>& events,
           const std::vector<State>& states);
  ~Database();
  // One more line of the journal, and the points that it changed.
  void add(const std::string& event, const std::vector<size_t>& points, const std::vector<State>& states);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx_cli::sweeps
