// Chooses the run to continue, and checks whether a recipe is still that run's.
#pragma once

#include <string>
#include <vector>

#include "app/run/run.h"
#include "lmx/comm.h"
#include "lmx/config.h"
#include "recipe/recipe.h"
#include "train/loop/trainer.h"

namespace lmx::train {

// Returns the folder that `--resume` refers to; "" to start a new run (`auto`, and there is no run to continue).
std::string directory_to_resume(const std::string& resume, const Recipe& recipe);

// A key that differs between two full recipes and affects the results of a run. Keys that may differ (threads, run.*,
// train.steps, how often to log, ...) are excluded.
struct Difference {
  std::string key, there, here;
};
std::vector<Difference> differences(const Node& before, const Node& now);

// Checks that a resumed run of this recipe may continue with another value of `key` (`--change`). UserError: it may
// not; the message gives the reason and the keys that may change.
void check_changeable(const std::string& key, const Node& recipe);

// `batch` of a recipe with `fit: memory` for the run in `directory`, which has chosen its values when it began: those
// of the run's config.yaml, except keys in `changed` and a batch.global that the recipe gives. Only rank 0 reads the
// file. Collective.
BatchConfig batch_of_run(BatchConfig batch, const std::string& directory, const std::vector<std::string>& changed,
                         Communicator& comm);
// A full recipe with these values of `batch`.
Node with_batch(Node full, const BatchConfig& batch);

struct Resumed {
  Position at;
  std::vector<Difference> changes;  // keys that have another value from this step on, on purpose
};
// Loads the run's last checkpoint into `session`. A run that was killed before its first checkpoint starts from step 0.
// For the keys that `options` name as changed, the values of the recipe are used. If no user watches the start
// (`--resume auto`, or a restart by lmx), a damaged checkpoint costs a warning, and the one before it is used.
// UserError: the recipe or the content of the data is another one, or the checkpoint is damaged.
Resumed resume_session(Session& session, const std::string& directory, const Node& full, const RunOptions& options);

}  // namespace lmx::train
