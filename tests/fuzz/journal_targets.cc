// The journals of sweeps and experiments, and the status file of a run.
#include "app/cells/journal.h"
#include "app/points/journal.h"
#include "lmx/error.h"
#include "scratch.h"
#include "targets.h"

namespace lmx::fuzz {

void journal(std::string_view input) {
  using namespace lmx_cli;
  static const Scratch scratch;
  static const sweeps::Plan plan = [] {
    sweeps::Plan p;
    p.name = "fuzzed";
    for (const char* id : {"0", "1-seed=2", "02-optimizer.lr=1e-3"}) p.points.emplace_back().id = id;
    return p;
  }();
  scratch.write("journal.jsonl", input);
  scratch.write("status.json", input);
  try {
    sweeps::read_standing(plan, scratch.path(""));
  } catch (const UserError&) {
  }
  sweeps::read_status(scratch.path(""));
  try {
    experiments::Journal(scratch.path("journal.jsonl"));
  } catch (const UserError&) {
  }
}

}  // namespace lmx::fuzz
