#include "train/loop/trainer.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "lmx/log.h"
#include "train/loop/worker_state.h"
#include "train/signals.h"

namespace lmx {

Trainer::Trainer(Session& session, std::string directory, const Position& at, int64_t until)
    : Trainer(session, std::move(directory), at, until, session.separate_steps() ? StepOf::worker : StepOf::group) {}

Trainer::Trainer(Session& session, std::string directory, const Position& at, int64_t until, StepOf kind)
    : run_(session, std::move(directory), at, until),
      s_(session),
      log_(run_),
      steps_(run_, kind),
      updater_(run_, kind),
      validator_(run_, log_),
      checkpointer_(run_, log_) {
  if (s_.asynchronous()) workers_.emplace(run_, log_, steps_, updater_, [this] { validate_and_save(); });
  if (s_.replicas && s_.separate_steps())
    replicas_.emplace(run_, log_, steps_, updater_, [this] { validate_and_save(); });
}

int Trainer::run() {
  const Position& at = run_.at;
  if (at.step > 0 && run_.eval_due(at.step) && at.evaluated != at.step) {  // a signal interrupted this validation
    validate();
    save();
  }
  if (at.step > 0 && at.evaluated == at.step) validator_.check_target();
  if (workers_)
    workers_->run();
  else if (replicas_)
    replicas_->run();
  else
    run_steps();
  if (!run_.signal && paused() && !validator_.validate_at_pause()) steps_.agree({});
  if (run_.signal) return interrupted();
  if (!checkpointer_.saved()) save();
  if (const double nll = validator_.nll(); !std::isfinite(nll))
    end_diverged(s_, str("[train] step ", at.step, ": the loss of the last validation is ", number_text(nll),
                         ". Try a lower optimizer.lr, or a clip"));
  return 0;
}

void Trainer::run_steps() {
  Position& at = run_.at;
  const auto start = [&](int64_t step) { return start_step(s_, steps_, updater_, step); };
  std::optional<StartedStep> ahead;  // the step at.step, if it is started already
  while (ahead || (at.step < run_.last_step() && !run_.ending())) {
    log_.start_clock();
    StartedStep step = ahead ? std::move(*ahead) : start(at.step);
    ahead.reset();
    if (runs_ahead(at.step + 1)) ahead = start(at.step + 1);
    finish(step);
    ++at.step;
    if (s_.replicas) synchronise();
    log_.stop_clock();
    log_.count_step(at.step, step.own, run_.step_tokens(at.step - 1), 1);
    if (run_.log_due(at.step)) log_.write_step(log_.lap());
    validate_and_save();
  }
}

// The parameters of which ranks have their own values.
void Trainer::synchronise() {
  s_.replicas->after_step(s_.ctx, run_.at.step, run_.last_step());
  if (run_.whole_due(run_.at.step) || run_.ending()) s_.replicas->publish(s_.ctx);
}

void Trainer::finish(StartedStep& step) {
  const auto [all, clipped] = results_of(s_, steps_, step);
  steps_.check_size(all, run_.at.step);
  log_.count_spread(all);
  try {
    updater_.finish(step.update, clipped, all, run_.at.step);
  } catch (const Diverged& e) {  // all ranks find it in the same step
    end_diverged(s_, e.what());
  }
}

// Whether the step `next` is started before the host reads the loss and the norm of the step before it, so that the
// device always has work. Nothing may be due between the two steps, and ranks have no own values. A signal that is
// found in between ends the run after the step `next`. Ranks still agree on the loss of a step before they start the
// next one, the times of sub-batches are measured, and the values of a model's loss terms are copied only when they are
// read.
bool Trainer::runs_ahead(int64_t next) const {
  return updater_.early() && s_.comm.size() == 1 && !s_.replicas && !s_.sub_batches() && run_.terms.empty() &&
         !run_.ending() && !run_.log_due(next) && !run_.whole_due(next);
}

void Trainer::validate_and_save() {
  if (run_.eval_due(run_.at.step)) validate();
  if (checkpointer_.due()) save();
}

void Trainer::validate() {
  if (!validator_.validate()) steps_.agree({});  // all ranks learn of the signal
}

void Trainer::save() {
  StateDict own = s_.separate_steps() ? pack_worker(run_) : StateDict();
  if (s_.replicas) own.merge(s_.replicas->state());
  checkpointer_.save(std::move(own));
  if (workers_ && s_.leads()) workers_->write_recorded();
}

int Trainer::interrupted() {
  if (!checkpointer_.saved()) save();
  if (s_.leads())
    log_info(str(SignalGuard::name(run_.signal), ": stopped after step ", run_.at.step, "; --resume ", run_.directory,
                 " continues the run"));
  return 128 + run_.signal;
}

}  // namespace lmx
