// The loop that trains, and all that it needs, made from a recipe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/carried_state.h"
#include "train/components.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/tensorboard.h"

namespace lmx::train {

// A run's pieces. Built before its folder exists, so that whatever is wrong with a recipe or its data leaves nothing
// behind.
struct LMX_API Session {
  explicit Session(const Recipe& r);

  Recipe recipe;
  std::unique_ptr<Communicator> comm;
  Tracer tracer;
  Context ctx;
  Dataset data;
  Network network;
  ParameterStore params;
  std::unique_ptr<Batcher> batcher;
  double lr_factor = 1;  // of lr_rule
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<SyncRules> sync;
  std::vector<ClipRule> clip;
  std::optional<Ema> ema;
  std::unique_ptr<CarriedState> carried;  // null where the batcher starts every sequence afresh
  int64_t total_steps = 0;
};

// Where a run stands; with parameters and states, all of it that a checkpoint must keep.
struct Position {
  int64_t step = 0;        // updates done
  int64_t evaluated = -1;  // the step of the last complete validation
  double valid_ppl = 0, best_ppl = 0;
  int64_t best_step = -1;
  double lr_scale = 1;  // halved by on_divergence: lower_lr
  int64_t skipped_in_a_row = 0;
  Window window;
};

LMX_API TrainState pack_state(const Session& s, const Position& at);
// UserError: a checkpoint that does not fit the session; `from` names it.
LMX_API Position unpack_state(Session& s, const TrainState& state, const std::string& from);

class LMX_API Trainer {
 public:
  Trainer(Session& session, std::string directory, const Position& at);
  // To the last step or to a signal. RunError: diverged under `stop`, a full disk. Returns 0, 130 or 143.
  int run();
  const Position& position() const { return at_; }

 private:
  struct StepLoss {
    double nats = 0;
    int64_t tokens = 0;
  };
  StepPlan begin_step();
  StepLoss forward_backward(const StepPlan& plan);
  double micro_batch(const Batch& batch, const StepPlan& plan, bool last);
  double gradient_seed() const;
  void update(const StepLoss& loss);
  void apply(double lr);
  std::string divergence(const StepLoss& loss, const ClipResult& clipped) const;
  void handle_divergence(const std::string& reason);
  double learning_rate() const;
  void show_progress();
  void set_pace(double seconds);  // from the seconds of the steps since the last record
  void log_step();
  void validate();
  void save();
  bool eval_due() const;
  bool checkpoint_due() const;
  int interrupted(int signal);

  Session& s_;
  std::string directory_;
  Position at_;
  Tape tape_;
  MetricsFile metrics_;
  std::optional<EventFile> events_;
  Stopwatch watch_;
  Pace pace_;
  int64_t laps_ = 0, saved_ = -1, comm_sent_ = 0, comm_received_ = 0;
};

}  // namespace lmx::train
