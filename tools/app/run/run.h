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
  // Pause after this step: validate, save, end. A run that continues later gives the same results as an uninterrupted
  // run. The schedule and the last step are those of the recipe. 0: run to the end.
  int64_t until_step = 0;
  // Keys of the recipe that a resumed run may have changed on purpose (`--change`), such as "optimizer.lr".
  std::vector<std::string> changed_keys = {};
  std::vector<std::string> environment = {};  // environment_values() of the recipe, which the run reports
};
struct RunResult {
  std::string directory;
  int64_t steps = 0;
  double valid_ppl = 0;  // of the last parameters; 0 if the run was interrupted before an evaluation
  double valid_nll = 0;  // nats per token of valid_ppl; finite even if the perplexity is not
  std::string unit;      // what a token is: word, char, byte, subword
  double best_ppl = 0;
  int64_t best_step = 0;
  std::optional<double> true_ppl;                 // of the text's source, if it is known
  double train_seconds = 0;                       // without validation and saving, summed over all resumes
  std::string stopped;                            // why it ended before the last step (`stop`); "": it did not
  bool reached_target = false;                    // the run ended because `stop.when` was met
  bool paused = false;                            // the run ended at until_step, with steps left
  std::optional<TranslationQuality> translation;  // train.final_bleu
  int exit_code = 0;                              // 0, 130 or 143
  bool translates = false;                        // true: model for `lmx translate`; false: for `lmx generate`
  std::string sentence;                           // of the source language, from the validation split; or ""
  bool leads = true;                              // true on the first rank, whose process reports the result
};
// UserError: a wrong recipe, missing data, a run that cannot be resumed. RunError: diverged, a full disk.
RunResult run_recipe(const Node& composed, const std::string& name, const RunOptions& options);

}  // namespace lmx
