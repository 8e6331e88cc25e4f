#include "cli/experiment/prepared.h"

#include <algorithm>

#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

// An experiment may have only one of the scales.
const Scale& scale_of(const Experiment& e, const std::string& name) {
  const bool desk = std::any_of(e.scales.begin(), e.scales.end(), [](const Scale& s) { return s.id == "desk"; });
  return name.empty() && !desk ? e.scales[0] : e.scale(name.empty() ? "desk" : name);
}

// Launched cells have other recipes than those with virtual ranks, and so another folder.
std::string default_folder(const Experiment& e, const Scale& scale, const std::string& launcher) {
  return lmx::str("runs/experiments/", e.id, "/", scale.id, launcher.empty() ? "" : "-" + launcher);
}

}  // namespace

Prepared::Prepared(const Choice& c)
    : experiment(read_experiment(experiment_file(c.name))),
      scale(scale_of(experiment, c.scale)),
      cells(make_cells(experiment, scale, {c.overrides, !c.launcher.empty()})),
      out(c.out.empty() ? default_folder(experiment, scale, c.launcher) : c.out) {
  check_formulas(experiment, scale, cells);
  planned = plan_cells(experiment, scale, cells);
}

Results results_of(const Prepared& p, const Finished& finished, const Ending& ending) {
  return judge(p.experiment, p.scale, p.cells, measure_cells(p.experiment, p.cells, finished.all_records(), p.planned),
               ending.failed);
}

}  // namespace lmx_cli::experiments
