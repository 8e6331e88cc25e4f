// Which run to go on with, and whether a recipe is still that run's.
#pragma once

#include <string>

#include "lmx/config.h"
#include "lmx/train.h"
#include "train/trainer.h"

namespace lmx::train {

// The folder that `--resume` means; "" to start a new run (auto, and there is none to go on with).
LMX_API std::string directory_to_resume(const std::string& resume, const Recipe& recipe);

// Keys that differ between two full recipes and decide what a run computes: "model.cells: 128 there, 256 here".
// Keys that may differ (threads, run.*, train.steps, how often to log, ...) are left out.
LMX_API std::vector<std::string> differences(const Node& before, const Node& now);

// Loads the run's last checkpoint into `session`; a run that was killed before its first one starts from step 0.
// UserError where the recipe is another one or the checkpoint damaged.
LMX_API Position resume_session(Session& session, const std::string& directory, const Node& full);

// The folder of checkpoint "last", "best" or a step. UserError listing what there is.
LMX_API std::string find_checkpoint(const std::string& directory, const std::string& which);

}  // namespace lmx::train
