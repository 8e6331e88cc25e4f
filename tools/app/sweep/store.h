// The folder of a sweep.
//
//   sweep.json           what was asked, the axes and the points; it is there when all points are
//   points/ID.yaml       the point's recipe with every default, as it runs
//   points/ID/           its run (docs/run-files.md); ID.log: what it printed
//   journal.jsonl, journal.sqlite, table.csv, table.md
#pragma once

#include <string>

#include "app/sweep/plan.h"

namespace lmx_cli::sweeps {

struct Folder {
  std::string path;
  std::string run(const Point& point) const { return path + "/points/" + point.id; }
  std::string recipe(const Point& point) const { return run(point) + ".yaml"; }
  std::string log(const Point& point) const { return run(point) + ".log"; }
};

// Writes all of them. RunError: a folder that cannot be written.
void write_plan(const Plan& plan, const Folder& folder);
// UserError: no sweep there, or a damaged one.
Plan read_plan(const Folder& folder);
bool holds_sweep(const std::string& directory);

// A new folder runs/sweeps/<name>/<date-time>.
std::string make_sweep_directory(const std::string& name);
// The newest sweep below runs/sweeps/<name>; "": there is none.
std::string newest_sweep(const std::string& name);

// What another request asks for that this sweep was not asked: "" or "metric valid ppl there, test BLEU here".
std::string request_difference(const Request& there, const Request& here);

}  // namespace lmx_cli::sweeps
