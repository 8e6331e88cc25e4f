// Training as a function: `lmx run`, with the parts of a run around the loop of training.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/inference/evaluate_run.h"
#include "app/runs/stored_parameters.h"
#include "lmx/comm.h"
#include "lmx/config.h"
#include "lmx/trace.h"
#include "recipe/components.h"
#include "recipe/recipe.h"
#include "runfiles/traffic.h"
#include "train/loop/trainer.h"
#include "train/session.h"

namespace lmx::app {

struct RunOptions {
  std::string resume = "";  // "", "auto" (the newest run of this recipe), or a run directory
  std::vector<std::string> command_line = {};
  std::string trace_file = "";  // a Chrome trace of the run's phases; "" for none
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
  double valid_bpb = 0;  // bits per byte of valid_nll; 0: unknown
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
  std::string generate;                           // options_for_text()
  bool translates = false;                        // true: model for `lmx translate`; false: for `lmx generate`
  std::string sentence;                           // of the source language, from the validation split; or ""
  bool leads = true;                              // true on the first rank, whose process reports the result
};
// UserError: a wrong recipe, missing data, a run that cannot be resumed. RunError: diverged, a full disk.
RunResult run_recipe(const Node& composed, const std::string& name, const RunOptions& options);

// Chooses the run to continue, and checks whether a recipe is still that run's.

// Returns the folder that `--resume` refers to; "" to start a new run (`auto`, and there is no run to continue).
std::string directory_to_resume(const std::string& resume, const Recipe& recipe);

// A key that differs between two full recipes and affects the results of a run. Keys that may differ (threads, run.*,
// train.steps, how often to log, ...) are excluded.
struct KeyDifference {
  std::string key, there, here;
};
std::vector<KeyDifference> differences(const Node& before, const Node& now);

// Returns whether a full recipe that was recorded earlier, by a run, a sweep or an experiment, is still the full recipe
// `now`; both as text. The recorded recipe may be older than this lmx: a key that it lacks has its default. A key that
// this lmx does not have is a difference.
bool is_same_recipe(const std::string& recorded, const std::string& now);

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
  std::vector<KeyDifference> changes;  // keys that have another value from this step on, on purpose
};
// Loads the run's last checkpoint into `session`. A run that was killed before its first checkpoint starts from step 0.
// For the keys that `options` name as changed, the values of the recipe are used. If no user watches the start
// (`--resume auto`, or a restart by lmx), a damaged checkpoint costs a warning, and the one before it is used.
// UserError: the recipe or the content of the data is another one, or the checkpoint is damaged.
Resumed resume_session(Session& session, const std::string& directory, const Node& full, const RunOptions& options);

// `init:` of a recipe: initial parameters from another run or file, and parameters that are never updated.

// Copies the values that fit into `params`; null: only determines which values fit. A value fits a parameter of the
// same name and shape. If the vocabularies differ and the other one is known, the rows of a table with one row per word
// are matched by word. `vocabulary` null: only the structure, as in a dry run. UserError: no run or file, a damaged
// file, a pattern that matches no parameter, no value that fits. RunError: a value that is not finite.
InitReport take_parameters(const InitConfig& init, const std::vector<ParameterSpec>& specs,
                           const Vocabulary* vocabulary, ParameterStore* params);

// Returns lines of text for the user.
std::vector<std::string> describe(const InitReport& report);

// A trace of several ranks: each rank has a named group of rows.

// Returns the spans of a rank's tracer as JSON for write_rank_trace(): the process "rank <rank>" with one row per
// thread, of which the first is also named "rank <rank>". RunError: no memory for the file.
std::string rank_rows(const Tracer& tracer, int rank);

// A Chrome trace of the rows of all ranks. RunError: the file cannot be written.
void write_rank_trace(const std::string& path, const std::vector<std::string>& rows);

// The lines that a run prints at its start and at its end.

// Prints what is trained: device, ranks, parameters, batch, rules and warnings.
void announce(const Session& session, const InitReport& init, const CommGroup& group, const std::string& directory);

// Collective. Reports the memory of rank 0 and, if there are several ranks, the maximum over ranks and the bytes of a
// step. Writes memory.json of the run.
void report_totals(Session& session, const TrafficCounter& traffic, const std::string& directory, int64_t step);

// Handles crashes: the process writes a line to stderr, and status.json no longer says "running".

// After this call a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) writes one line to stderr. Then the signal ends
// the process as it would have without the handler. The line names the plugin if the crash happened in one of its
// functions (according to in_plugin() or the address of the instruction). A signal that already has a handler (for
// example a sanitizer's) is left unchanged.
void report_crashes();

// During its lifetime, a crash replaces the status file `path`. The new file has the state "failed", and its reason
// names the signal and the plugin. The signal handler makes only async-signal-safe calls. Only one object may exist at
// a time. REQUIRES: report_crashes() has been called.
class CrashStatus {
 public:
  // `host` is the value of the key `host`. `step` is read during the crash, so it must outlive this object.
  CrashStatus(const std::string& path, const std::string& host, const std::atomic<int64_t>& step);
  ~CrashStatus();
  CrashStatus(const CrashStatus&) = delete;
  CrashStatus& operator=(const CrashStatus&) = delete;
};

}  // namespace lmx::app
