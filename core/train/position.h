// The position of a run, which a checkpoint stores beside parameters and states.
#pragma once

#include <cstdint>
#include <string>

#include "runfiles/checkpoint.h"
#include "runfiles/open_window.h"
#include "train/loss_scale.h"
#include "train/progress.h"
#include "train/session.h"

namespace lmx {

// Begins the names of what the rules of `sync` keep alike on all ranks (SyncRule::common_state()), in
// train_state.safetensors.
inline constexpr const char* kCommonState = "sync/";
inline constexpr const char* kAverages = "ema/";  // the same for the averages of parameters

// Progress of one worker of a parameter server.
struct Worker {
  int64_t step = 0;     // steps that the worker has completed
  bool pulled = false;  // it has pulled values for its next step
  double clock = 0;     // time of its last event; while it computes, time of its next event
};

// Position of a run. Together with parameters and states it is everything that a checkpoint must store.
struct Position {
  int64_t step = 0;        // completed steps, each of one global batch; with workers, those that all completed
  int64_t updates = 0;     // made in these steps, counted by optimizer and schedule; with workers, by this rank
  int64_t evaluated = -1;  // the step of the last complete validation
  double valid_ppl = 0, best_ppl = 0, valid_nll = 0;
  double valid_bpb = 0;  // bits per byte of the last validation; 0: unknown
  int64_t best_step = -1;
  int64_t no_better = 0;  // validations since the best one
  double lr_scale = 1;    // halved by on_divergence: lower_lr
  int64_t skipped_in_a_row = 0;
  double seconds = 0;                             // seconds of training, without validation and saving
  int64_t counted_steps = 0, counted_tokens = 0;  // targets of the first counted_steps steps, see tokens_until()
  ScaleState loss_scale;
  Window window;
  OpenWindow open;      // counters of this rank since the last record, as of the last checkpoint
  int64_t records = 0;  // training records in metrics.jsonl; -1: the checkpoint's version did not store the number
  Worker worker;        // with workers, `window`, `skipped_in_a_row` and `loss_scale` also differ between ranks
};

// Both functions are collective. Rank 0 gets the whole state except `ranks`; the other ranks get nothing.
TrainState pack_state(const Session& s, const Position& at);
// UserError if the checkpoint does not fit the session; the message contains `from`. `same_batch` is false if
// batch.global has changed: the recurrent states then belong to other sequences, so all of them start from zero.
Position unpack_state(Session& s, const TrainState& state, const std::string& from, bool same_batch = true);

// The state that all parts of a trainer share: the run and its position.
struct RunState {
  RunState(Session& session, std::string directory, const Position& at, int64_t until);
  Session& s;
  std::string directory;           // of the run
  std::vector<std::string> terms;  // names of the loss terms that the model adds
  LossScale scaling;
  Position at;
  int64_t until = 0;         // the step after which the run pauses; 0: no pause
  int signal = 0;            // a signal that any rank has received
  std::string stopped = {};  // why the run ends before its last step; "" if it does not
  int64_t last_step() const { return s.shared->total_steps; }
  bool paused() const { return until > 0 && at.step >= until && at.step < last_step(); }
  bool ending() const { return signal != 0 || !stopped.empty() || paused(); }
  bool log_due(int64_t step) const;
  bool eval_due(int64_t step) const;
  bool whole_due(int64_t step) const;     // whether all parameters and states of that step are read
  bool recipe_reads(int64_t step) const;  // the same in a run that is not paused
  int64_t step_tokens(int64_t step) const { return s.size_of_step(step).tokens; }  // targets of all ranks
  int64_t own_tokens(int64_t step) const { return step_tokens(step) * s.sequences / s.recipe.batch.global; }
};

}  // namespace lmx
