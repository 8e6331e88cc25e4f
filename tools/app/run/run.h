// Training as a function: `lmx run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/inference/evaluate_run.h"
#include "lmx/config.h"

namespace lmx {

struct RunOptions {
  std::string resume;  // "", "auto" (the newest run of this recipe), or a run directory
  std::vector<std::string> command_line;
  std::string trace_file;  // a Chrome trace of the run's phases; "" for none
  // Pause after this step: validate, save, end. Going on later gives what an uninterrupted run gives; the schedule and
  // the last step are the recipe's. 0: run to the end.
  int64_t until_step = 0;
  // Keys of the recipe that a resumed run may have changed on purpose (`--change`): "optimizer.lr".
  std::vector<std::string> changed_keys = {};
};
struct RunResult {
  std::string directory;
  int64_t steps = 0;
  double valid_ppl = 0;  // of the last parameters; 0 when the run was interrupted before an evaluation
  double valid_nll = 0;  // its nats per token, which are finite where the perplexity is not
  std::string unit;      // what a token is: word, char, byte, subword
  double best_ppl = 0;
  int64_t best_step = 0;
  std::optional<double> true_ppl;                 // of the source, where it is known
  double train_seconds = 0;                       // without validation and saving, over all resumes
  std::string stopped;                            // why it ended before the last step (`stop`); "": it did not
  bool reached_target = false;                    // it ended because `stop.when` was met
  bool paused = false;                            // at until_step, with steps left
  std::optional<TranslationQuality> translation;  // train.final_bleu
  int exit_code = 0;                              // 0, 130 or 143
  bool translates = false;                        // the model is one for `lmx translate`, else one for `lmx generate`
  bool leads = true;                              // false on ranks but the first, whose process says the result for all
};
// UserError: a wrong recipe, missing data, a run that cannot be resumed. RunError: diverged, a full disk.
RunResult run_recipe(const Node& composed, const std::string& name, const RunOptions& options);

}  // namespace lmx
