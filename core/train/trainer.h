// The training loop and all objects that it needs, built from a recipe.
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

// The file that stores the times of sub-batches, as PairCosts::to_json() writes them, if the batcher needs times.
inline constexpr const char* kCostsFile = "sub_batch_times.json";

// The inputs of a session besides its recipe.
struct SessionStart {
  std::string resumed = {};       // the folder of the run that is resumed, or ""
  std::function<Dataset()> open;  // the data that the recipe names; called once in a process
  // Called once in a process with the initial parameters. Replaces the values of those that start from another run. May
  // be empty.
  std::function<void(const std::vector<ParameterSpec>&, const Vocabulary&, ParameterStore&)> init = {};
};

// The objects that the ranks of one process share. They are equal on all ranks and change only in updates, which one
// rank makes for all.
struct SharedSession {
  // `times`: the sub-batch times of the run that is resumed, or "".
  SharedSession(const Recipe& r, Context& ctx, const SessionStart& start, const std::string& times);

  Dataset data;
  Network network;
  ParameterStore params;
  std::optional<PairCosts> costs;  // present if the batcher needs times
  std::unique_ptr<Batcher> batcher;
  double lr_factor = 1;  // factor that lr_rule applies to the learning rate
  std::unique_ptr<Optimizer> optimizer;
  std::vector<ClipRule> clip;
  std::optional<Ema> ema;
  int64_t total_steps = 0;
  WorkerBoard workers;  // used if ranks do not run in lockstep
};

// The part of a run that belongs to one rank. It is built before the run's folder exists, so that an error in a recipe
// or its data leaves no files.
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
  // With synchronous strategies: the shared values, with gradients of this rank. With asynchronous rules of `sync`:
  // this rank's own copy of the values; the shared values are then those of the server.
  ParameterStore params;
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<SyncRules> sync;
  std::unique_ptr<CarriedState> carried;        // null if the batcher starts every sequence from a zero state
  std::unique_ptr<WorkerClock> clock;           // null if ranks run in lockstep
  std::unique_ptr<server::Link> link;           // between workers in several processes
  bool leads() const { return ctx.rank == 0; }  // this rank writes the files that a run writes once
  bool asynchronous() const { return clock != nullptr; }
  // True if an item of the batch is a sub-batch of sentences.
  bool sub_batches() const { return batcher.plan().items == Items::sub_batches; }
  StepSize size_of_step(int64_t step) const;  // size of the global batch
  // This rank's memory. It includes the parameters and optimizer state that the rank shares with rank 0 of its process.
  MemoryStats memory() const;

 private:
  void make_workers();
  std::vector<Tensor> held_;  // shared memory that counts as this rank's
};

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

void unpack_worker(Session& s, const StateDict& own, Position& at);

// The error that ends a run if `train.on_divergence` is `stop`.
class Diverged : public RunError {
 public:
  using RunError::RunError;
  ~Diverged() override;
};

class Trainer {
 public:
  // `until`: the step after which the run pauses; 0: no pause.
  Trainer(Session& session, std::string directory, const Position& at, int64_t until = 0);
  // Trains until the last step, a pause or a signal. Throws Diverged, or RunError for a full disk. Returns 0, 130 or
  // 143.
  int run();
  bool paused() const { return until_ > 0 && at_.step >= until_ && at_.step < s_.shared->total_steps; }
  double valid_nll() const { return paused_ppl_ > 0 ? paused_nll_ : at_.valid_nll; }
  double valid_ppl() const { return paused_ppl_ > 0 ? paused_ppl_ : at_.valid_ppl; }  // the last known value
  const Position& position() const { return at_; }
  // Number of completed steps. May be called from any thread.
  const std::atomic<int64_t>& reached() const { return reached_; }
  const std::string& stopped() const { return stopped_; }  // why the run ended before the last step; "" if it did not
  bool reached_target() const { return reached_target_; }  // the run ended because `stop.when` was met
  const TrafficCounter& traffic() const { return traffic_; }
  void record(const std::string& line);  // adds a line that is not a measurement to metrics.jsonl; rank 0 only

 private:
  // Forward and backward pass of a sub-batch, in seconds since the step began.
  struct SubBatchTime {
    double begin = 0, end = 0;
    int64_t tokens = 0;  // targets
  };
  struct StepLoss {
    double nats = 0;
    std::vector<double> terms = {};  // sums of the model's loss terms, in the order of term_names_; empty: all 0
    int64_t tokens = 0;
    int64_t positions = 0, padded = 0;  // for sub-batches: tokens of both sides; the same with padding
    double seconds = 0, slowest = 0;    // of forward and backward: mean over ranks, and the slowest rank
  };
  // The result of a step's update; equal on all ranks.
  struct Outcome {
    double grad_norm = 0;
    std::string divergence;                    // why a divergence prevented the update; "" if none did
    std::vector<std::string> overflow;         // gradients that exceeded the range of half precision
    std::map<std::string, int64_t> rows = {};  // updated rows of parameters with row-sparse gradients, over all ranks
    bool made() const { return divergence.empty() && overflow.empty(); }
  };
  void run_in_step();
  std::vector<Batch> draw(int64_t step) const;  // this rank's part of the step, as micro-batches
  StepPlan begin_step(std::span<const Batch> share, int64_t step);
  StepLoss forward_backward(std::span<const Batch> share, const StepPlan& plan);
  StepLoss micro_batch(const Batch& batch, const StepPlan& plan, bool last);
  double gradient_terms(std::span<const Batch> share, int64_t step) const;
  double unscale() const;                                    // factor from scaled gradients to those of the mean
  void check_shape(const Batch& batch) const;                // UserError
  void check_size(const StepLoss& all, int64_t step) const;  // UserError
  StepLoss agree(const StepLoss& own);  // reduces the loss over all ranks, and finds whether any rank received a signal
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
  // Steps, tokens and seconds since the last record: those of this rank, or of all workers (mean of steps, sum of
  // tokens, maximum of seconds).
  struct Lap {
    double steps = 0, tokens = 0, seconds = 0;
  };
  Lap own_lap() const;
  void set_pace(const Lap& lap);
  int64_t own_tokens(int64_t step) const;
  int64_t step_tokens(int64_t step) const;  // over all ranks
  double tokens_until(int64_t step);
  void add_sub_batches(Record& record) const;
  void add_scale(Record& record) const;
  Record own_record();
  void log_step();
  void pause();  // stops the training clock
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

  // Workers of a parameter server (workers.cc).
  void run_workers();
  void work();
  void start_link();
  bool take_turn(server::Event event, double time);
  bool my_turn(server::Event event);
  void push(const StepLoss& loss, const ClipResult& clipped);
  void note_event(bool push);
  void count_served();
  bool meeting_due() const;
  bool whole_due(int64_t step) const;  // the server's values must be published after this step
  int64_t meeting_after(int64_t step) const;
  void meet();
  void gather_windows();
  StateDict worker_state() const;
  void write_recorded() const;

  Session& s_;
  std::string directory_;
  Position at_;
  Tape tape_;
  std::optional<MetricsFile> metrics_;  // on rank 0 only
  std::optional<EventFile> events_;
  Stopwatch watch_;
  Pace pace_;
  TrafficCounter traffic_;
  LossScale scaling_;
  StopRule stop_rule_;
  std::string stopped_;
  bool reached_target_ = false;
  std::vector<std::string> term_names_;  // of the loss terms that the model adds
  double mean_over_ = 1;                 // tokens or sequences of the step
  double spread_ = 0;       // (slowest - mean) / mean of the ranks' times, summed over the steps since the last record
  int64_t lap_tokens_ = 0;  // tokens of the same steps, see own_tokens()
  Lap group_lap_;           // all workers' lap, as of their last meeting
  std::atomic<int64_t> reached_{0};
  std::vector<SubBatchTime> timeline_;    // sub-batches of this rank's last step
  std::map<int64_t, int64_t> durations_;  // number of sub-batches in the same steps, by duration_bin()
  int64_t laps_ = 0, folded_laps_ = 0;    // steps since the last record (or resume); those of them in at_.open
  int64_t saved_ = -1;
  int64_t until_ = 0;
  double paused_ppl_ = 0, paused_nll_ = 0;  // result of the validation at a pause
  int signal_ = 0;                          // a signal that any rank has received
  int64_t meeting_ = 0;                     // the step at which workers meet next
  std::string failure_;                     // the error because of which this worker cannot continue
};

}  // namespace lmx::train
