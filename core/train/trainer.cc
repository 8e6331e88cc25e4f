// The training loop. run() is the whole story; everything below it is one of its verbs.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "train/signals.h"

namespace lmx::train {
namespace {

constexpr int64_t kMaxSkipsInARow = 20;  // beyond it the parameters themselves are lost

}  // namespace

Trainer::Trainer(Session& session, std::string directory, const Position& at)
    : s_(session), directory_(std::move(directory)), at_(at) {
  if (s_.leads()) metrics_.emplace(directory_ + "/metrics.jsonl", at.step, at.evaluated == at.step);
  if (s_.leads() && s_.recipe.run.tensorboard) events_.emplace(directory_, at.step);
  if (at.step > 0) saved_ = at.step;
  s_.ctx.tape = &tape_;
  pace_.total_steps = s_.shared->total_steps;
}

int Trainer::run() {
  if (at_.step > 0 && eval_due(at_.step) && at_.evaluated != at_.step) {  // a signal cut it short
    validate();
    save();
  }
  s_.asynchronous() ? run_workers() : run_in_step();
  if (signal_) return interrupted(signal_);
  if (saved_ != at_.step) save();
  return 0;
}

void Trainer::run_in_step() {
  while (at_.step < s_.shared->total_steps && !signal_) {
    watch_.start();
    const std::vector<Batch> share = draw(at_.step);
    const StepPlan plan = begin_step(share, at_.step);
    const StepLoss own = forward_backward(share, plan);
    s_.sync->finish();
    update(agree(own));
    ++at_.step;
    watch_.stop();
    count_traffic();
    show_progress();
    if (log_due(at_.step)) log_step();
    if (eval_due(at_.step)) validate();
    if (checkpoint_due()) save();
  }
}

std::vector<Batch> Trainer::draw(int64_t step) const {
  const Span span(s_.ctx.tracer, "batch");
  const int64_t micro = s_.recipe.batch.micro > 0 ? s_.recipe.batch.micro : s_.sequences;
  std::vector<Batch> share;
  for (int64_t done = 0; done < s_.sequences; done += micro)
    share.push_back(s_.batcher.batch(step, s_.first_sequence + done, std::min(micro, s_.sequences - done)));
  return share;
}

StepPlan Trainer::begin_step(std::span<const Batch> share, int64_t step) {
  const RandomKey key(static_cast<uint64_t>(s_.recipe.seed));
  const auto number = static_cast<uint64_t>(step);
  StepPlan plan;
  plan.step = step;
  plan.sampler_key = key.fold("sampler").fold(number);
  // Workers do not meet in a step, so there is nothing in drawing the same.
  if (s_.asynchronous() && s_.ctx.rank > 0) plan.sampler_key = plan.sampler_key.fold(static_cast<uint64_t>(s_.ctx.rank));
  s_.ctx.key = key.fold("step").fold(number);
  s_.comm.set_step(step);
  s_.sync->begin_step(s_.ctx, s_.params, share, plan);
  return plan;
}

// Gradients add up over the micro-batches, each scaled by the whole step's count: their sum is the whole batch's
// gradient.
Trainer::StepLoss Trainer::forward_backward(std::span<const Batch> share, const StepPlan& plan) {
  StepLoss sum;
  for (const Batch& batch : share) {
    sum.nats += micro_batch(batch, plan, &batch == &share.back());
    sum.tokens += batch.tokens();
  }
  return sum;
}

double Trainer::micro_batch(const Batch& batch, const StepPlan& plan, bool last) {
  tape_.on_ready = nullptr;
  if (last && !s_.asynchronous()) tape_.on_ready = [this](const Var& param) { s_.sync->grad_ready(param); };
  ModelState state =
      s_.carried ? s_.carried->gather(s_.ctx, batch) : s_.network.model->initial_state(s_.ctx, batch.sequences());
  LossValue loss;
  {
    const Span span(s_.ctx.tracer, "forward");
    const Var features = s_.network.model->forward(s_.ctx, s_.params, batch, state);
    loss = s_.network.loss->forward(s_.ctx, s_.params, features, batch.targets.reshape({batch.tokens()}), plan);
  }
  {
    const Span span(s_.ctx.tracer, "backward");
    tape_.backward(s_.ctx, loss.loss, gradient_seed());
  }
  if (s_.carried) s_.carried->stage(batch, state);
  return loss.nats;
}

// A step's gradient is the mean over what is updated at once: the batch of all ranks, or a worker's own.
double Trainer::gradient_seed() const {
  const int64_t sequences = s_.asynchronous() ? s_.sequences : s_.recipe.batch.global;
  const bool per_token = s_.network.loss->normalize() == "token";
  return 1.0 / static_cast<double>(per_token ? sequences * s_.batcher.sequence_length() : sequences);
}

Trainer::StepLoss Trainer::agree(const StepLoss& own) {
  const double numbers[] = {own.nats, static_cast<double>(own.tokens), static_cast<double>(SignalGuard::received())};
  const std::vector<double> all = s_.comm.gather_numbers(numbers, "control");
  StepLoss sum;
  for (size_t i = 0; i < all.size(); i += 3) {
    sum.nats += all[i];
    sum.tokens += static_cast<int64_t>(all[i + 1]);
    signal_ = std::max(signal_, static_cast<int>(all[i + 2]));
  }
  return sum;
}

void Trainer::update(const StepLoss& loss) {
  const double lr = learning_rate(at_.step);
  const Outcome outcome = s_.comm.once<Outcome>([&] { return clip_and_apply(loss, lr); });
  at_.window.lr = lr;
  account(loss, outcome, at_.step);
  s_.params.clear_gradients();
  s_.sync->after_step(s_.ctx);
}

void Trainer::account(const StepLoss& loss, const Outcome& outcome, int64_t step) {
  at_.window.grad_norm = outcome.grad_norm;
  if (!outcome.divergence.empty()) return handle_divergence(outcome.divergence, step);
  if (s_.carried) s_.carried->commit();
  at_.window.nats += loss.nats;
  at_.window.tokens += loss.tokens;
  ++at_.window.updates;
  for (const auto& [name, rows] : outcome.rows) at_.window.rows[name] += rows;
  at_.skipped_in_a_row = 0;
}

// The gradients are the sums over ranks, equal everywhere, and not written to: what clipping scales, the update scales.
Trainer::Outcome Trainer::clip_and_apply(const StepLoss& loss, double lr) {
  const Span span(s_.ctx.tracer, "update");
  for (const std::string& name : s_.params.names()) s_.params.at(name).grad().coalesce(s_.ctx);
  const ClipResult clipped = measure_gradients(s_.ctx, s_.params, s_.shared->clip);
  Outcome outcome{clipped.norm, divergence(loss, clipped)};
  if (!outcome.divergence.empty()) return outcome;
  for (const std::string& name : s_.params.names()) {
    Var& param = s_.params.at(name);
    if (param.grad().empty() || s_.sync->owns_update(param)) continue;
    for (const RowSparse& piece : param.grad().pieces) outcome.rows[name] += static_cast<int64_t>(piece.indices.size());
    s_.shared->optimizer->update(s_.ctx, param, lr, at_.step + 1, clipped.factor(name));
    if (s_.shared->ema) s_.shared->ema->update(s_.ctx, param);
  }
  return outcome;
}

std::string Trainer::divergence(const StepLoss& loss, const ClipResult& clipped) const {
  const double nll = loss.nats / static_cast<double>(loss.tokens), limit = s_.recipe.train.max_loss;
  if (!std::isfinite(nll)) return str("the loss is ", number_text(nll));
  if (!clipped.finite || !std::isfinite(clipped.norm)) return str("the gradient's norm is ", number_text(clipped.norm));
  if (limit > 0 && nll > limit) return str("the loss, ", nll, " nats per token, is above train.max_loss, ", limit);
  return {};
}

void Trainer::handle_divergence(const std::string& reason, int64_t step) {
  const std::string who = s_.asynchronous() ? str("worker ", s_.ctx.rank, ", ") : "";
  const std::string what = str("[train] ", who, "step ", step + 1, ": ", reason);
  const std::string& policy = s_.recipe.train.on_divergence;
  if (policy == "stop")
    stop(what + "; stopped (train.on_divergence: stop). Try a lower optimizer.lr, or a clip");
  ++at_.window.skipped;
  if (++at_.skipped_in_a_row >= kMaxSkipsInARow)
    stop(str(what, "; stopped after ", at_.skipped_in_a_row, " updates left out in a row"));
  if (policy == "lower_lr") at_.lr_scale /= 2;
  if (s_.carried) s_.carried->discard();
  if (s_.leads() || s_.asynchronous())
    log_warn(policy == "lower_lr" ? str(what, "; the update is left out, the learning rate now ", learning_rate(step))
                                  : what + "; the update is left out");
}

// An end that all ranks come to in the same step: of several processes the first says why, and the others leave after it.
void Trainer::stop(const std::string& why) const {
  if (s_.leads() || s_.comm.shares_memory() || s_.asynchronous()) throw RunError(why);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  throw EndProcess(1, why, true);
}

double Trainer::learning_rate(int64_t step) const {
  return at_.lr_scale * s_.schedule->rate({step, s_.batcher.steps_per_epoch(), s_.shared->total_steps});
}

void Trainer::count_traffic() {
  traffic_.add(s_.comm.ledger());
  s_.comm.clear_ledger();
}

void Trainer::show_progress() {
  ++laps_;
  pace_.step = s_.asynchronous() ? at_.worker.step : at_.step;
  if (!s_.leads() || !progress_enabled()) return;
  if (pace_.seconds_per_step == 0) set_pace(watch_.elapsed());  // before the first record
  progress_line(progress_text(at_.window, pace_, s_.data.unit));
}

void Trainer::set_pace(double seconds) {
  const auto steps = static_cast<double>(std::max<int64_t>(laps_, 1));
  const auto tokens = static_cast<double>(s_.recipe.batch.global * s_.batcher.sequence_length());
  pace_.seconds_per_step = seconds / steps;
  pace_.tokens_per_second = seconds > 0 ? tokens * steps / seconds : 0;
}

// This rank's bytes and memory. After a resume the bytes are those of the steps since then, so their number is told.
Record Trainer::own_record() const {
  Record record = rank_record(at_.step, s_.ctx.rank, traffic_.window(), s_.memory());
  record.values.emplace_back("steps", static_cast<double>(laps_));
  size_t number = 0;
  for (const UnitTime& unit : s_.sync->timeline()) {
    const std::string name = str("unit/", number++, "/", unit.first, "/");
    record.values.emplace_back(name + "bytes", static_cast<double>(std::max(unit.sent, unit.received)));
    record.values.emplace_back(name + "ready_s", unit.ready);
    record.values.emplace_back(name + "begin_s", unit.begin);
    record.values.emplace_back(name + "end_s", unit.end);
  }
  return record;
}

// Of a group of several ranks also each rank's own record.
void Trainer::log_step() {
  const double seconds = watch_.lap();
  if (laps_ > 0) set_pace(seconds);  // a worker that is through with its steps keeps its pace
  const TrafficSum sent = sum_of(traffic_.window());
  const CommTimes times = s_.sync->take_times();
  std::vector<std::string> ranks;
  if (s_.comm.size() > 1)
    ranks = s_.comm.gather_texts(to_json_line(own_record()), "control");
  const Window& w = at_.window;
  const auto tokens = static_cast<double>(s_.recipe.batch.global * s_.batcher.sequence_length());
  const double nll = w.tokens ? w.nats / static_cast<double>(w.tokens) : NAN;
  Record record{at_.step,
                "train",
                {{"epoch", static_cast<double>(at_.step) / static_cast<double>(s_.batcher.steps_per_epoch())},
                 {"nll_nat", nll},
                 {"ppl", std::exp(nll)},
                 {"lr", w.lr},
                 {"grad_norm", w.grad_norm},
                 {"skipped", static_cast<double>(w.skipped)},
                 {"tokens", static_cast<double>(at_.step) * tokens},
                 {"comm_sent_bytes", static_cast<double>(sent.sent)},
                 {"comm_received_bytes", static_cast<double>(sent.received)}}};
  for (const auto& [name, rows] : w.rows)
    record.values.emplace_back("rows/" + name, static_cast<double>(rows) / static_cast<double>(w.updates));
  for (const auto& value : s_.sync->take_values()) record.values.push_back(value);
  add_health(record, s_.sync->take_health());
  // What depends on the clock comes last.
  record.values.insert(record.values.end(), {{"step_s", pace_.seconds_per_step},
                                             {s_.data.unit + "s_per_s", pace_.tokens_per_second},
                                             {"comm_s", times.busy},
                                             {"comm_exposed_s", times.exposed}});
  if (s_.leads()) {
    metrics_->write(record);
    for (const std::string& line : ranks) metrics_->write_line(line);
    if (events_) events_->write(record);
    const std::string line = progress_text(w, pace_, s_.data.unit);
    log_debug(line);
    progress_line(line);
  }
  at_.window = {};
  laps_ = 0;
  traffic_.next_window();
}

void Trainer::validate() {
  const Span span(s_.ctx.tracer, "validate");
  const TrainConfig& t = s_.recipe.train;
  const auto swap = [&] {
    if (s_.shared->ema)
      s_.comm.once<int>([&] {
        s_.shared->ema->swap(s_.params);
        return 0;
      });
  };
  swap();
  const SplitPlan plan{"valid", t.eval_batch, s_.batcher.sequence_length(), t.eval_tokens, t.eval_carry};
  ParameterStore params = s_.shared->params.replica();  // the server's, where workers have values of their own
  const SplitScore score =
      score_split(s_.ctx, s_.network, params, s_.data.valid, plan, [] { return SignalGuard::received() != 0; });
  swap();
  if (!score.complete) {  // the run resumes with it
    agree({});
    return;
  }
  at_.evaluated = at_.step;
  at_.valid_ppl = score.ppl();
  if (at_.best_step < 0 || std::isnan(at_.best_ppl) || score.ppl() < at_.best_ppl) {
    at_.best_ppl = score.ppl();
    at_.best_step = at_.step;
  }
  s_.schedule->validated(score.ppl());
  if (!s_.leads()) return;
  const Record record{at_.step,
                      "valid",
                      {{"nll_nat", score.nll()}, {"ppl", score.ppl()}, {"tokens", static_cast<double>(score.tokens)}}};
  metrics_->write(record);
  if (events_) events_->write(record);
  log_info(str("step ", at_.step, "/", s_.shared->total_steps, " valid ppl ", score.ppl(), " (",
               count_text(score.tokens), " ", s_.data.unit, "s)"));
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

// A file of its own holds what only one rank has, where any rank has something.
void Trainer::save() {
  const Span span(s_.ctx.tracer, "checkpoint");
  const TrainState state = pack_state(s_, at_);
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
    if (s_.asynchronous()) write_recorded();
    finish_checkpoint(directory_, at_.step, state, by_rank ? s_.comm.size() : 0);
    std::vector<int64_t> protect;
    if (s_.recipe.checkpoint.keep_best && at_.best_step >= 0) protect.push_back(at_.best_step);
    prune_checkpoints(directory_, static_cast<int>(s_.recipe.checkpoint.keep_last), protect);
  }
  s_.comm.barrier();  // nobody goes on, and perhaps dies, believing in a checkpoint that is not there
  saved_ = at_.step;
  count_traffic();
}

int Trainer::interrupted(int signal) {
  if (saved_ != at_.step) save();
  if (s_.leads())
    log_info(str(signal == SIGINT ? "SIGINT" : "SIGTERM", ": stopped after step ", at_.step, "; --resume ", directory_,
                 " goes on"));
  return 128 + signal;
}

}  // namespace lmx::train
