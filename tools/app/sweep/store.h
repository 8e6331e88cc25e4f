// The folder of a sweep.
//
//   sweep.json           the request, its working folder, the axes and the points; written after all points
//   points/ID.yaml       the point's recipe with every default, as it runs
//   points/ID/           its run (docs/run-files.md); ID.log: the output of the run
//   journal.jsonl, table.csv, table.md
#pragma once

#include <string>

#include "app/sweep/plan.h"

namespace lmx::app::sweep {

struct Folder {
  std::string path;
  std::string run(const Point& point) const { return path + "/points/" + point.id; }
  std::string recipe(const Point& point) const { return run(point) + ".yaml"; }
  std::string log(const Point& point) const { return run(point) + ".log"; }
};

// Writes sweep.json and the recipes of all points. RunError: a folder that cannot be written.
void write_plan(const Plan& plan, const Folder& folder);
// UserError: no sweep there, a damaged one, or a point whose recipe has changed since the sweep began.
Plan read_plan(const Folder& folder);
bool holds_sweep(const std::string& directory);

// Creates the folder runs/sweeps/<name>/<date-time>.
std::string make_sweep_directory(const std::string& name);
// Returns the newest sweep in runs/sweeps/<name>; "" if there is none.
std::string newest_sweep(const std::string& name);

// Returns the differences between two requests: "" or "metric valid ppl there, test BLEU here".
std::string request_difference(const Request& there, const Request& here);

}  // namespace lmx::app::sweep
