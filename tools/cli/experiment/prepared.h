// An experiment at a scale, as the commands of `lmx experiment` use it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/experiment/journal.h"
#include "app/experiment/planned.h"
#include "app/experiment/results.h"
#include "app/experiment/runner.h"
#include "cli/command_line.h"

namespace lmx::app::cli {

struct Choice {
  std::string name, scale, out;  // scale "": desk, if the experiment has it; out "": the default folder
  std::vector<std::string> overrides;
  std::string launcher;  // "": virtual ranks, as the file says
};

// Everything is checked, and nothing has run. The members refer to each other, so it is not copied.
struct Prepared {
  explicit Prepared(const Choice& choice);
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  const experiment::Experiment experiment;
  const experiment::Scale& scale;
  const std::vector<experiment::Cell> cells;
  const std::string out;
  std::map<std::string, experiment::PlannedCell> planned;
  std::map<std::string, experiment::StepCurve> curves;
};

// Computes the rows and verdicts from all cells that are done, and from those that the planner computes.
experiment::Results results_of(const Prepared& prepared, const experiment::Finished& finished,
                               const experiment::Ending& ending = {});

// Parts of `lmx experiment`.
void add_experiment_all(Command group);
void add_experiment_doc(Command group);

}  // namespace lmx::app::cli
