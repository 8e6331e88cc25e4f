// The training loop. run() contains all of it; the functions below are its steps.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <thread>

#include "base/text.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/model_extensions.h"
#include "runfiles/checkpoint.h"
#include "train/signals.h"

namespace lmx::train {

Diverged::~Diverged() = default;

Trainer::Trainer(Session& session, std::string directory, const Position& at, int64_t until)
    : s_(session),
      directory_(std::move(directory)),
      at_(at),
      scaling_(s_.recipe.loss_scale, s_.recipe.precision),
      stop_rule_(s_.recipe.stop.when),
      term_names_(loss_terms(*s_.network.model)),
      until_(until) {
  if (at_.loss_scale.scale == 0) at_.loss_scale = scaling_.start();
  if (s_.leads()) open_metrics();
  if (s_.leads() && s_.recipe.run.tensorboard) events_.emplace(directory_, at.step);
  if (at.step > 0) saved_ = at.step;
  reached_ = at.step;
  s_.ctx.tape = &tape_;
  pace_.total_steps = s_.shared->total_steps;
  s_.comm.clear_ledger();  // bytes that were sent to build the session belong to no step
}

// If a run is killed, at most the last line is incomplete, and it belongs to a step after the checkpoint. Any other
// damaged line causes a warning.
void Trainer::open_metrics() {
  const std::string path = directory_ + "/metrics.jsonl";
  metrics_.emplace(path, at_.step, at_.evaluated == at_.step);
  const KeptLines& kept = metrics_->kept();
  if (!kept.damaged.empty())
    log_warn(
        str("[metrics] ", path, ":", kept.damaged.front(), ": ",
            kept.damaged.size() == 1 ? "this line is" : str("this and ", kept.damaged.size() - 1, " more lines are"),
            " damaged and left out"));
  if (at_.records > kept.train)
    log_warn(str("[metrics] ", path, " lacks ", at_.records - kept.train, " of ", at_.records,
                 " records of the training up to step ", at_.step));
  at_.records = kept.train;
}

int Trainer::run() {
  if (at_.step > 0 && eval_due(at_.step) && at_.evaluated != at_.step) {  // a signal interrupted this validation
    validate();
    save();
  }
  if (at_.step > 0 && at_.evaluated == at_.step) check_target();
  s_.asynchronous() ? run_workers() : run_in_step();
  if (!signal_ && paused()) look();
  if (signal_) return interrupted(signal_);
  if (saved_ != at_.step) save();
  return 0;
}

void Trainer::run_in_step() {
  while (at_.step < s_.shared->total_steps && !ending()) {
    watch_.start();
    const std::vector<Batch> share = draw(at_.step);
    const StepPlan plan = begin_step(share, at_.step);
    const StepLoss own = forward_backward(share, plan);
    s_.sync->finish();
    const StepLoss all = agree(own);
    check_size(all, at_.step);
    update(all);
    ++at_.step;
    pause();
    count_traffic();
    show_progress();
    if (log_due(at_.step)) log_step();
    if (eval_due(at_.step)) validate();
    if (checkpoint_due()) save();
  }
}

// Ends the run for a reason that all ranks find in the same step. If the ranks are several processes, rank 0 reports
// the reason, and the others end two seconds later.
void Trainer::stop(const std::string& why) const {
  if (s_.leads() || s_.comm.shares_memory() || s_.asynchronous()) throw Diverged(why);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  throw EndProcess(1, why, true);
}

void Trainer::pause() {
  at_.seconds += watch_.stop();
}

// Scores the validation split. Uses the EMA parameters if `train.ema` is set.
SplitScore Trainer::score() {
  const TrainConfig& t = s_.recipe.train;
  const auto swap = [&] {
    if (s_.shared->ema)
      s_.comm.once<int>([&] {
        s_.shared->ema->swap(s_.params);
        return 0;
      });
  };
  swap();
  ParameterStore params = s_.shared->params.replica();  // the server's values if workers have their own copies
  const SplitPlan plan{"valid", t.eval_batch, s_.batcher.sequence_length(), t.eval_tokens, t.eval_carry, t.eval_shards};
  const auto interrupted = [] { return SignalGuard::received() != 0; };
  const SplitScore score =
      s_.sub_batches()
          ? score_pairs(s_.ctx, s_.network, params, s_.data.valid_pairs, plan, interrupted)
          : score_text(s_.ctx, s_.network, params, s_.data.valid, s_.data.valid_strings, plan, interrupted);
  swap();
  return score;
}

void Trainer::validate() {
  const Span span(s_.ctx.tracer, "validate");
  const SplitScore score = this->score();
  if (!score.complete) {  // the run resumes with this validation
    agree({});
    return;
  }
  at_.evaluated = at_.step;
  at_.valid_ppl = score.ppl();
  at_.valid_nll = score.nll();
  ++at_.no_better;
  if (at_.best_step < 0 || std::isnan(at_.best_ppl) || score.ppl() < at_.best_ppl) {
    at_.best_ppl = score.ppl();
    at_.best_step = at_.step;
    at_.no_better = 0;
  }
  s_.schedule->validated(score.ppl());
  tell(score);
  check_target();
}

// Validates at a pause. The result affects neither the schedule nor `best`, which see only validations that are due,
// and its record is removed when the run resumes.
void Trainer::look() {
  if (at_.evaluated == at_.step) return;
  const Span span(s_.ctx.tracer, "validate");
  const SplitScore score = this->score();
  if (!score.complete) {
    agree({});
    return;
  }
  paused_ppl_ = score.ppl();
  paused_nll_ = score.nll();
  tell(score);
}

void Trainer::tell(const SplitScore& score) {
  if (!s_.leads()) return;
  Record record{at_.step,
                "valid",
                {{"nll_nat", score.nll()},
                 {"nll_bit", score.nll() / std::numbers::ln2},
                 {"ppl", score.ppl()},
                 {"tokens", static_cast<double>(score.tokens)},
                 {"epoch", static_cast<double>(at_.step) / static_cast<double>(s_.batcher.steps_per_epoch())},
                 {"train_s", at_.seconds}}};
  const bool characters = is_character(s_.data.unit);
  if (characters) record.values.insert(record.values.begin() + 2, {"bpc", score.nll() / std::numbers::ln2});
  metrics_->write(record);
  if (events_) events_->write(record);
  log_info(str("step ", at_.step, "/", s_.shared->total_steps, " valid ppl ", score.ppl(),
               characters ? str(", bpc ", score.nll() / std::numbers::ln2) : "", " (", count_text(score.tokens), " ",
               s_.data.unit, "s)"));
}

void Trainer::check_target() {
  const int64_t patience = s_.recipe.stop.patience;
  reached_target_ = stop_rule_.met(at_.valid_nll);
  if (reached_target_)
    stopped_ = stop_rule_.describe(at_.valid_nll);
  else if (patience > 0 && at_.no_better >= patience)
    stopped_ = str(at_.no_better, at_.no_better == 1 ? " validation" : " validations in a row", " above valid.ppl ",
                   at_.best_ppl, " of step ", at_.best_step);
  else
    return;
  if (s_.leads())
    log_info(str(reached_target_ ? "stop.when: " : "stop.patience: ", stopped_, " after step ", at_.step, ", ",
                 duration_text(at_.seconds), " of training (validation and saving not counted)"));
}

bool Trainer::log_due(int64_t step) const {
  return step % s_.recipe.train.log_every == 0 || step == s_.shared->total_steps;
}

bool Trainer::eval_due(int64_t step) const {
  const int64_t every = s_.recipe.train.eval_every > 0 ? s_.recipe.train.eval_every : s_.batcher.steps_per_epoch();
  return step % every == 0 || step == s_.shared->total_steps;
}

bool Trainer::checkpoint_due() const {
  const bool evaluated = at_.evaluated == at_.step;
  const CheckpointConfig& c = s_.recipe.checkpoint;
  if (c.every > 0 ? at_.step % c.every == 0 : evaluated) return true;
  return (c.keep_best && evaluated && at_.best_step == at_.step) || at_.step == s_.shared->total_steps;
}

// Saves a checkpoint. If any rank has state that differs between ranks, each rank also writes a separate file.
void Trainer::save() {
  const Span span(s_.ctx.tracer, "checkpoint");
  count_traffic();
  fold_window();
  static_cast<void>(tokens_until(at_.step));  // a resumed run may have another batch size after this step
  TrainState state = pack_state(s_, at_);
  {
    const std::vector<std::string> windows = s_.comm.gather_texts(at_.open.to_json(), "checkpoint");
    if (s_.leads()) state.numbers.merge(window_texts(windows));
  }
  if (metrics_) metrics_->sync();
  StateDict own = s_.sync->state();
  if (s_.asynchronous()) own.merge(worker_state());
  const double mine[] = {own.empty() ? 0.0 : 1.0};
  const std::vector<double> any = s_.comm.gather_numbers(mine, "checkpoint");
  const bool by_rank = std::find(any.begin(), any.end(), 1.0) != any.end();
  if (s_.leads()) begin_checkpoint(directory_, at_.step);
  s_.comm.barrier();
  if (by_rank) add_to_checkpoint(directory_, at_.step, s_.ctx.rank, own);
  s_.comm.barrier();
  if (s_.leads()) {
    finish_checkpoint(directory_, at_.step, state, by_rank ? s_.comm.size() : 0);
    if (s_.asynchronous()) write_recorded();
    std::vector<int64_t> protect;
    if (s_.recipe.checkpoint.keep_best && at_.best_step >= 0) protect.push_back(at_.best_step);
    prune_checkpoints(directory_, static_cast<int>(s_.recipe.checkpoint.keep_last), protect);
  }
  s_.comm.barrier();  // no rank may continue before the checkpoint exists: it could fail and rely on it
  saved_ = at_.step;
  count_traffic();
}

int Trainer::interrupted(int signal) {
  if (saved_ != at_.step) save();
  if (s_.leads())
    log_info(str(SignalGuard::name(signal), ": stopped after step ", at_.step, "; --resume ", directory_,
                 " continues the run"));
  return 128 + signal;
}

}  // namespace lmx::train
