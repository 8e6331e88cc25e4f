// The training loop. run() is the whole story; everything below it is one of its verbs.
#include "train/trainer.h"

#include <cmath>
#include <csignal>

#include "lmx/error.h"
#include "lmx/log.h"
#include "train/signals.h"

namespace lmx::train {
namespace {

constexpr int64_t kMaxSkipsInARow = 20;  // beyond it the parameters themselves are lost

double value_of(const Var& loss) {
  const Tensor& t = loss.value();
  return t.dtype() == DType::f64 ? t.data<double>()[0] : static_cast<double>(t.data<float>()[0]);
}

}  // namespace

Trainer::Trainer(Session& session, std::string directory, const Position& at)
    : s_(session), directory_(std::move(directory)), at_(at), metrics_(directory_ + "/metrics.jsonl", at.step, at.evaluated == at.step) {
  if (s_.recipe.run.tensorboard) events_.emplace(directory_, at.step);
  if (at.step > 0) saved_ = at.step;
  s_.ctx.tape = &tape_;
  pace_.total_steps = s_.total_steps;
}

int Trainer::run() {
  const SignalGuard guard;
  if (at_.step > 0 && eval_due() && at_.evaluated != at_.step) {  // a signal cut it short
    validate();
    save();
  }
  while (at_.step < s_.total_steps && !SignalGuard::received()) {
    watch_.start();
    const StepPlan plan = begin_step();
    const StepLoss loss = forward_backward(plan);
    update(loss);
    ++at_.step;
    watch_.stop();
    show_progress();
    if (at_.step % s_.recipe.train.log_every == 0 || at_.step == s_.total_steps) log_step();
    if (eval_due()) validate();
    if (checkpoint_due()) save();
  }
  if (const int signal = SignalGuard::received()) return interrupted(signal);
  if (saved_ != at_.step) save();
  return 0;
}

StepPlan Trainer::begin_step() {
  const RandomKey key(static_cast<uint64_t>(s_.recipe.seed));
  const auto step = static_cast<uint64_t>(at_.step);
  StepPlan plan;
  plan.step = at_.step;
  plan.sampler_key = key.fold("sampler").fold(step);
  s_.ctx.key = key.fold("step").fold(step);
  s_.comm->set_step(at_.step);
  s_.sync->begin_step(s_.ctx, plan);
  return plan;
}

// Gradients add up over the micro-batches, each scaled by the whole step's count: their sum is the whole batch's
// gradient.
Trainer::StepLoss Trainer::forward_backward(const StepPlan& plan) {
  const int64_t share = s_.recipe.batch.global;  // of the one rank
  const int64_t micro = s_.recipe.batch.micro > 0 ? s_.recipe.batch.micro : share;
  StepLoss sum;
  for (int64_t first = 0; first < share; first += micro) {
    const int64_t count = std::min(micro, share - first);
    Batch batch;
    {
      const Span span(s_.ctx.tracer, "batch");
      batch = s_.batcher->batch(at_.step, first, count);
    }
    sum.nats += micro_batch(batch, plan, first + count == share);
    sum.tokens += batch.tokens();
  }
  return sum;
}

double Trainer::micro_batch(const Batch& batch, const StepPlan& plan, bool last) {
  tape_.on_ready = nullptr;
  if (last) tape_.on_ready = [this](const Var& param) { s_.sync->grad_ready(s_.ctx, param); };
  ModelState state =
      s_.carried ? s_.carried->gather(s_.ctx, batch) : s_.network.model->initial_state(s_.ctx, batch.sequences());
  Var loss;
  {
    const Span span(s_.ctx.tracer, "forward");
    const Var features = s_.network.model->forward(s_.ctx, s_.params, batch, state);
    loss = s_.network.loss->forward(s_.ctx, s_.params, features, batch.targets.reshape({batch.tokens()}),
                                    plan.sampler_key);
  }
  {
    const Span span(s_.ctx.tracer, "backward");
    tape_.backward(s_.ctx, loss, gradient_seed());
  }
  if (s_.carried) s_.carried->stage(batch, state);
  return value_of(loss);
}

double Trainer::gradient_seed() const {
  const int64_t sequences = s_.recipe.batch.global;
  const bool per_token = s_.network.loss->normalize() == "token";
  return 1.0 / static_cast<double>(per_token ? sequences * s_.batcher->sequence_length() : sequences);
}

void Trainer::update(const StepLoss& loss) {
  ClipResult clipped;
  {
    const Span span(s_.ctx.tracer, "sync");
    s_.sync->before_step(s_.ctx);
  }
  const Span span(s_.ctx.tracer, "update");
  for (const std::string& name : s_.params.names()) s_.params.at(name).grad().coalesce(s_.ctx);
  clipped = clip_gradients(s_.ctx, s_.params, s_.clip);
  at_.window.lr = learning_rate();
  at_.window.grad_norm = clipped.norm;
  const std::string reason = divergence(loss, clipped);
  if (reason.empty()) {
    apply(at_.window.lr);
    at_.window.nats += loss.nats;
    at_.window.tokens += loss.tokens;
    at_.skipped_in_a_row = 0;
  } else {
    handle_divergence(reason);
  }
  s_.params.clear_gradients();
  s_.sync->after_step(s_.ctx);
}

void Trainer::apply(double lr) {
  for (const std::string& name : s_.params.names()) {
    Var& param = s_.params.at(name);
    if (param.grad().empty() || s_.sync->owns_update(param)) continue;
    s_.optimizer->update(s_.ctx, param, lr, at_.step + 1);
    if (s_.ema) s_.ema->update(s_.ctx, param);
  }
  if (s_.carried) s_.carried->commit();
}

std::string Trainer::divergence(const StepLoss& loss, const ClipResult& clipped) const {
  const double nll = loss.nats / static_cast<double>(loss.tokens), limit = s_.recipe.train.max_loss;
  if (!std::isfinite(nll)) return str("the loss is ", number_text(nll));
  if (!clipped.finite || !std::isfinite(clipped.norm)) return str("the gradient's norm is ", number_text(clipped.norm));
  if (limit > 0 && nll > limit) return str("the loss, ", nll, " nats per token, is above train.max_loss, ", limit);
  return {};
}

void Trainer::handle_divergence(const std::string& reason) {
  const std::string what = str("[train] step ", at_.step + 1, ": ", reason);
  const std::string& policy = s_.recipe.train.on_divergence;
  if (policy == "stop")
    throw RunError(what + "; stopped (train.on_divergence: stop). Try a lower optimizer.lr, or a clip");
  ++at_.window.skipped;
  if (++at_.skipped_in_a_row >= kMaxSkipsInARow)
    throw RunError(str(what, "; stopped after ", at_.skipped_in_a_row, " updates left out in a row"));
  if (policy == "lower_lr") at_.lr_scale /= 2;
  if (s_.carried) s_.carried->discard();
  log_warn(policy == "lower_lr" ? str(what, "; the update is left out, the learning rate now ", learning_rate())
                                : what + "; the update is left out");
}

double Trainer::learning_rate() const {
  return at_.lr_scale * s_.schedule->rate({at_.step, s_.batcher->steps_per_epoch(), s_.total_steps});
}

void Trainer::show_progress() {
  ++laps_;
  for (const LedgerEntry& entry : s_.comm->ledger()) {
    comm_sent_ += entry.sent;
    comm_received_ += entry.received;
  }
  s_.comm->clear_ledger();
  pace_.step = at_.step;
  if (!progress_enabled()) return;
  if (pace_.seconds_per_step == 0) set_pace(watch_.elapsed());  // before the first record
  progress_line(progress_text(at_.window, pace_, s_.data.unit));
}

void Trainer::set_pace(double seconds) {
  const auto steps = static_cast<double>(std::max<int64_t>(laps_, 1));
  const auto tokens = static_cast<double>(s_.recipe.batch.global * s_.batcher->sequence_length());
  pace_.seconds_per_step = seconds / steps;
  pace_.tokens_per_second = seconds > 0 ? tokens * steps / seconds : 0;
}

void Trainer::log_step() {
  set_pace(watch_.lap());
  const Window& w = at_.window;
  const auto tokens = static_cast<double>(s_.recipe.batch.global * s_.batcher->sequence_length());
  const double nll = w.tokens ? w.nats / static_cast<double>(w.tokens) : NAN;
  const Record record{at_.step,
                      "train",
                      {{"epoch", static_cast<double>(at_.step) / static_cast<double>(s_.batcher->steps_per_epoch())},
                       {"nll_nat", nll},
                       {"ppl", std::exp(nll)},
                       {"lr", w.lr},
                       {"grad_norm", w.grad_norm},
                       {"skipped", static_cast<double>(w.skipped)},
                       {"tokens", static_cast<double>(at_.step) * tokens},
                       {"comm_sent_bytes", static_cast<double>(comm_sent_)},
                       {"comm_received_bytes", static_cast<double>(comm_received_)},
                       {"step_s", pace_.seconds_per_step},
                       {s_.data.unit + "s_per_s", pace_.tokens_per_second}}};
  metrics_.write(record);
  if (events_) events_->write(record);
  const std::string line = progress_text(w, pace_, s_.data.unit);
  log_debug(line);
  progress_line(line);
  at_.window = {};
  laps_ = comm_sent_ = comm_received_ = 0;
}

void Trainer::validate() {
  const Span span(s_.ctx.tracer, "validate");
  const TrainConfig& t = s_.recipe.train;
  if (s_.ema) s_.ema->swap(s_.params);
  const SplitPlan plan{"valid", t.eval_batch, s_.batcher->sequence_length(), t.eval_tokens, t.eval_carry};
  const SplitScore score =
      score_split(s_.ctx, s_.network, s_.params, s_.data.valid, plan, [] { return SignalGuard::received() != 0; });
  if (s_.ema) s_.ema->swap(s_.params);
  if (!score.complete) return;  // the run resumes with it
  at_.evaluated = at_.step;
  at_.valid_ppl = score.ppl();
  if (at_.best_step < 0 || std::isnan(at_.best_ppl) || score.ppl() < at_.best_ppl) {
    at_.best_ppl = score.ppl();
    at_.best_step = at_.step;
  }
  s_.schedule->validated(score.ppl());
  const Record record{at_.step,
                      "valid",
                      {{"nll_nat", score.nll()}, {"ppl", score.ppl()}, {"tokens", static_cast<double>(score.tokens)}}};
  metrics_.write(record);
  if (events_) events_->write(record);
  log_info(str("step ", at_.step, "/", s_.total_steps, " valid ppl ", score.ppl(), " (", count_text(score.tokens), " ",
               s_.data.unit, "s)"));
}

bool Trainer::eval_due() const {
  const int64_t every = s_.recipe.train.eval_every > 0 ? s_.recipe.train.eval_every : s_.batcher->steps_per_epoch();
  return at_.step % every == 0 || at_.step == s_.total_steps;
}

bool Trainer::checkpoint_due() const {
  const bool evaluated = at_.evaluated == at_.step;
  const CheckpointConfig& c = s_.recipe.checkpoint;
  if (c.every > 0 ? at_.step % c.every == 0 : evaluated) return true;
  return (c.keep_best && evaluated && at_.best_step == at_.step) || at_.step == s_.total_steps;
}

void Trainer::save() {
  const Span span(s_.ctx.tracer, "checkpoint");
  save_checkpoint(directory_, at_.step, pack_state(s_, at_));
  saved_ = at_.step;
  std::vector<int64_t> protect;
  if (s_.recipe.checkpoint.keep_best && at_.best_step >= 0) protect.push_back(at_.best_step);
  prune_checkpoints(directory_, static_cast<int>(s_.recipe.checkpoint.keep_last), protect);
}

int Trainer::interrupted(int signal) {
  if (saved_ != at_.step) save();
  log_info(str(signal == SIGINT ? "SIGINT" : "SIGTERM", ": stopped after step ", at_.step, "; --resume ", directory_, " goes on"));
  return 128 + signal;
}

}  // namespace lmx::train
