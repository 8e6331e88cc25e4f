// Which run to go on with, and whether a recipe is still that run's.
#pragma once

#include <string>

#include "lmx/config.h"
#include "recipe/recipe.h"
#include "train/trainer.h"

namespace lmx::train {

// The folder that `--resume` means; "" to start a new run (auto, and there is none to go on with).
std::string directory_to_resume(const std::string& resume, const Recipe& recipe);

// A key that differs between two full recipes and decides what a run computes. Keys that may differ (threads, run.*,
// train.steps, how often to log, ...) are none.
struct Difference {
  std::string key, there, here;
};
std::vector<Difference> differences(const Node& before, const Node& now);

// Checks that a resumed run may continue with another value of `key` (`--change`). UserError: it may not; the message
// gives the reason and the keys that may change.
void check_changeable(const std::string& key);

struct Resumed {
  Position at;
  std::vector<Difference> changes;  // keys that have another value from here on, on purpose
};
// Loads the run's last checkpoint into `session`; a run that was killed before its first one starts from step 0. Of
// keys in `changed` the recipe's values are taken. UserError where the recipe is another one or the checkpoint damaged.
Resumed resume_session(Session& session, const std::string& directory, const Node& full,
                       const std::vector<std::string>& changed = {});

}  // namespace lmx::train
