// The loop that trains, and all that it needs, made from a recipe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "recipe/components.h"
#include "recipe/stop_rule.h"
#include "recipe/sync_rules.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"
#include "runfiles/open_window.h"
#include "runfiles/tensorboard.h"
#include "runfiles/traffic.h"
#include "sync/server/server_link.h"
#include "sync/server/worker_clock.h"
#include "train/carried_state.h"
#include "train/evaluate.h"
#include "train/loss_scale.h"
#include "train/pair_costs.h"
#include "train/progress.h"

namespace lmx::train {

// Of a run whose batcher asked for times: PairCosts::to_json().
inline constexpr const char* kCostsFile = "sub_batch_times.json";

// What a session starts from beside its recipe.
struct SessionStart {
  std::string resumed = {};       // the folder of the run that goes on, or ""
  std::function<Dataset()> open;  // the data that the recipe names; called once in a process
  // Called once in a process with the parameters' first values: sets those that start from another run. May be empty.
  std::function<void(const std::vector<ParameterSpec>&, const Vocabulary&, ParameterStore&)> init = {};
};

// What the ranks of one process share: everything that is equal on all ranks and changes only in updates, which one of
// them makes for all.
struct SharedSession {
  // `times`: of a run that goes on, those of its sub-batches, or "".
  SharedSession(const Recipe& r, Context& ctx, const SessionStart& start, const std::string& times);

  Dataset data;
  Network network;
  ParameterStore params;
  std::optional<PairCosts> costs;  // measured where the batcher asks for it
  std::unique_ptr<Batcher> batcher;
  double lr_factor = 1;  // of lr_rule
  std::unique_ptr<Optimizer> optimizer;
  std::vector<ClipRule> clip;
  std::optional<Ema> ema;
  int64_t total_steps = 0;
  WorkerBoard workers;  // where ranks do not go in step
};

// One rank's pieces of a run. Built before the run's folder exists, so that whatever is wrong with a recipe or its data
// leaves nothing behind.
struct Session {
  Session(const Recipe& r, Communicator& c, const SessionStart& start);

  // This rank's sequences of each global batch: [first_sequence, first_sequence + sequences), possibly none.
  int64_t first_sequence = 0, sequences = 0;
  Recipe recipe;
  Communicator& comm;
  Tracer tracer;
  Context ctx;
  std::shared_ptr<SharedSession> shared;
  const Dataset& data;
  const Network& network;
  const Batcher& batcher;
  // The shared values under gradients of this rank; its own values, of which the shared ones are the server's, where
  // the rules of `sync` are asynchronous.
  ParameterStore params;
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<SyncRules> sync;
  std::unique_ptr<CarriedState> carried;        // null where the batcher starts every sequence afresh
  std::unique_ptr<WorkerClock> clock;           // null where ranks go in step
  std::unique_ptr<server::Link> link;           // between workers in several processes
  bool leads() const { return ctx.rank == 0; }  // writes what a run writes once
  bool asynchronous() const { return clock != nullptr; }
  bool sub_batches() const {
    return batcher.plan().items == Items::sub_batches;
  }                                           // an item of the batch is some sentences
  StepSize size_of_step(int64_t step) const;  // of the global batch
  // This rank's memory; parameters and optimizer that it shares with rank 0 of its process count as its own.
  MemoryStats memory() const;

 private:
  void make_workers();
  std::vector<Tensor> held_;  // what this rank holds of memory that it shares
};

// Where one worker of a server stands.
struct Worker {
  int64_t step = 0;     // its steps that are over
  bool pulled = false;  // and it computes another
  double clock = 0;     // of its last event, or while it computes of its next
};

// Where a run stands; with parameters and states, all of it that a checkpoint must keep.
struct Position {
  int64_t step = 0;        // steps done, each of one global batch; of workers, steps that all have done
  int64_t updates = 0;     // made in these steps, which optimizer and schedule count; of workers, a rank's own
  int64_t evaluated = -1;  // the step of the last complete validation
  double valid_ppl = 0, best_ppl = 0, valid_nll = 0;
  int64_t best_step = -1;
  int64_t no_better = 0;  // validations since the best one
  double lr_scale = 1;    // halved by on_divergence: lower_lr
  int64_t skipped_in_a_row = 0;
  double seconds = 0;                             // of training, without validation and saving
  int64_t counted_steps = 0, counted_tokens = 0;  // targets of so many first steps, see tokens_until()
  ScaleState loss_scale;
  Window window;
  OpenWindow open;      // what this rank had counted when it last saved, since the last record
  int64_t records = 0;  // of the training that metrics.jsonl has; -1: a checkpoint of before this was kept
  Worker worker;        // with `window`, `skipped_in_a_row` and `loss_scale` a rank's own where ranks do not go in step
};

// Both collective. Rank 0 gets the whole state but for `ranks`, the others nothing.
TrainState pack_state(const Session& s, const Position& at);
// UserError: a checkpoint that does not fit the session; `from` names it. `same_batch` false: batch.global was another
// one, so that the recurrent states belong to other sequences, and all start from zero.
Position unpack_state(Session& s, const TrainState& state, const std::string& from, bool same_batch = true);

void unpack_worker(Session& s, const StateDict& own, Position& at);

// What `train.on_divergence: stop` ends a run with.
class Diverged : public RunError {
 public:
  using RunError::RunError;
  ~Diverged() override;
};

class Trainer {
 public:
  // `until`: the step to pause after; 0: none.
  Trainer(Session& session, std::string directory, const Position& at, int64_t until = 0);
  // To the last step, to a pause or to a signal. Diverged; RunError: a full disk. Returns 0, 130 or 143.
  int run();
  bool paused() const { return until_ > 0 && at_.step >= until_ && at_.step < s_.shared->total_steps; }
  double valid_nll() const { return paused_ppl_ > 0 ? paused_nll_ : at_.valid_nll; }
  double valid_ppl() const { return paused_ppl_ > 0 ? paused_ppl_ : at_.valid_ppl; }  // the last that is known
  const Position& position() const { return at_; }
  // Steps that are made; for any thread.
  const std::atomic<int64_t>& reached() const { return reached_; }
  const std::string& stopped() const { return stopped_; }  // why it ended before the last step; "": it did not
  bool reached_target() const { return reached_target_; }  // because `stop.when` was met
  const TrafficCounter& traffic() const { return traffic_; }
  void record(const std::string& line);  // a line of metrics.jsonl that is no measurement; rank 0's

 private:
  // A forward and backward of a sub-batch, seconds since the step's begin.
  struct SubBatchTime {
    double begin = 0, end = 0;
    int64_t tokens = 0;  // targets
  };
  struct StepLoss {
    double nats = 0;
    std::vector<double> terms = {};  // sums of the model's terms, in the order of term_names_; empty: all 0
    int64_t tokens = 0;
    int64_t positions = 0, padded = 0;  // of sub-batches: tokens of both sides, and what padding would make of them
    double seconds = 0, slowest = 0;    // of forward and backward: of the mean and of the slowest rank
  };
  // What the update of a step came to; equal on all ranks.
  struct Outcome {
    double grad_norm = 0;
    std::string divergence;                    // why it was left out; "": it was made, or:
    std::vector<std::string> overflow;         // gradients that left half precision's range
    std::map<std::string, int64_t> rows = {};  // of row-sparse gradients: those that any rank has
    bool made() const { return divergence.empty() && overflow.empty(); }
  };
  void run_in_step();
  std::vector<Batch> draw(int64_t step) const;  // this rank's share of the step, in micro-batches
  StepPlan begin_step(std::span<const Batch> share, int64_t step);
  StepLoss forward_backward(std::span<const Batch> share, const StepPlan& plan);
  StepLoss micro_batch(const Batch& batch, const StepPlan& plan, bool last);
  double gradient_terms(std::span<const Batch> share, int64_t step) const;
  double unscale() const;                                    // from the gradients to those of the mean
  void check_shape(const Batch& batch) const;                // UserError
  void check_size(const StepLoss& all, int64_t step) const;  // UserError
  StepLoss agree(const StepLoss& own);  // the loss over all ranks; and whether a signal came to any
  void update(const StepLoss& loss);
  Outcome clip_and_apply(const StepLoss& loss, double lr);
  void add_loss(const StepLoss& loss);
  void account(const StepLoss& loss, const Outcome& outcome, int64_t step);
  Outcome judge(const StepLoss& loss, const ClipResult& clipped) const;
  std::string divergence(const StepLoss& loss, const ClipResult& clipped) const;
  void handle_overflow(const Outcome& outcome, int64_t step);
  void handle_divergence(const std::string& reason, int64_t step);
  [[noreturn]] void stop(const std::string& why) const;
  double learning_rate(int64_t step) const;
  void count_traffic();
  void show_progress();
  // Steps, tokens and seconds since the last record: of this rank, or of workers together (mean steps, sum of tokens,
  // the longest time).
  struct Lap {
    double steps = 0, tokens = 0, seconds = 0;
  };
  Lap own_lap() const;
  void set_pace(const Lap& lap);
  int64_t own_tokens(int64_t step) const;
  int64_t step_tokens(int64_t step) const;  // of all ranks
  double tokens_until(int64_t step);
  void add_sub_batches(Record& record) const;
  void add_scale(Record& record) const;
  Record own_record();
  void log_step();
  void pause();  // the clock of training
  void validate();
  void look();
  void tell(const SplitScore& score);
  SplitScore score();
  void check_target();
  bool ending() const { return signal_ != 0 || !stopped_.empty() || paused(); }
  void open_metrics();
  void fold_window();
  void save();
  bool log_due(int64_t step) const;
  bool eval_due(int64_t step) const;
  bool checkpoint_due() const;
  int interrupted(int signal);

  // Workers of a server (workers.cc).
  void run_workers();
  void work();
  void start_link();
  bool take_turn(server::Event event, double time);
  bool my_turn(server::Event event);
  void push(const StepLoss& loss, const ClipResult& clipped);
  void note_event(bool push);
  void count_served();
  bool meeting_due() const;
  bool whole_due(int64_t step) const;  // the server's values are to be seen
  int64_t meeting_after(int64_t step) const;
  void meet();
  void gather_windows();
  StateDict worker_state() const;
  void write_recorded() const;

  Session& s_;
  std::string directory_;
  Position at_;
  Tape tape_;
  std::optional<MetricsFile> metrics_;  // rank 0's
  std::optional<EventFile> events_;
  Stopwatch watch_;
  Pace pace_;
  TrafficCounter traffic_;
  LossScale scaling_;
  StopRule stop_rule_;
  std::string stopped_;
  bool reached_target_ = false;
  std::vector<std::string> term_names_;  // of the terms that the model adds to the loss
  double mean_over_ = 1;                 // tokens or sequences of the step
  double spread_ = 0;       // (slowest - mean) / mean of the ranks' times, summed over the steps since the last record
  int64_t lap_tokens_ = 0;  // of the same steps, see own_tokens()
  Lap group_lap_;           // of workers, as they last met
  std::atomic<int64_t> reached_{0};
  std::vector<SubBatchTime> timeline_;    // of this rank's last step
  std::map<int64_t, int64_t> durations_;  // sub-batches of the same steps, by duration_bin()
  int64_t laps_ = 0, folded_laps_ = 0;    // steps since the last record (or the resume), those of them in at_.open
  int64_t saved_ = -1;
  int64_t until_ = 0;
  double paused_ppl_ = 0, paused_nll_ = 0;  // of a pause between two validations
  int signal_ = 0;                          // that some rank has received
  int64_t meeting_ = 0;                     // the step at which workers meet next
  std::string failure_;                     // why this worker cannot go on
};

}  // namespace lmx::train
