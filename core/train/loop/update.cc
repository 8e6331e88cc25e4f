#include "train/loop/update.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <sstream>
#include <thread>

#include "backend/counting/device.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/shard_strategy.h"

namespace lmx {
namespace {

constexpr int64_t kMaxSkipsInARow = 20;  // after more skips the parameters themselves are probably invalid

}  // namespace

Diverged::~Diverged() = default;

void end_diverged(const Session& s, const std::string& why) {
  constexpr std::chrono::seconds kTimeToReport{2};
  if (s.leads() || s.comm.shares_memory()) throw Diverged(why);
  std::this_thread::sleep_for(kTimeToReport);
  throw EndProcess(1, why, true);
}

// The host then never waits between backward and the update, and with one rank not even before the next step. The run
// ends at the first divergence, and no later step is recorded or saved, so an update that should not have been made has
// no effect. (Its kernels leave it out themselves if a gradient is not finite.) The other policies and a dynamic loss
// scale continue from the state before such an update, which only the host can decide. On the CPU nothing is gained.
bool Updater::early() const {
  return s_.ctx.device.kind == Device::Kind::cuda && s_.recipe.train.on_divergence == "stop" && !run_.scaling.dynamic();
}

GradientMeasure gradient_measure(Session& s, ParameterStore& params, double unscale,
                                 const std::map<std::string, Tensor>& divided) {
  for (const std::string& name : params.names()) params.at(name).grad().coalesce(s.ctx);
  return {s.ctx, params, s.shared->clip, unscale, divided};
}

StepUpdate Updater::start(int64_t step, const StepRunner& steps) {
  const double lr = learning_rate(step);
  std::map<std::string, Tensor> divided;
  for (ShardStrategy* shard : s_.sync->shards()) divided.merge(shard->squares(s_.ctx));
  auto update = s_.comm.once<StepUpdate>([&] {
    const Span span(s_.ctx.tracer, "update");
    StepUpdate started{gradient_measure(s_, s_.summed, steps.unscale(), divided), lr, sparse_rows(s_.summed)};
    if (early()) apply(started);
    return started;
  });
  if (s_.replicas) {
    update.own = gradient_measure(s_, s_.replicas->params(), steps.unscale_own());
    update.rows.merge(sparse_rows(s_.replicas->params()));
  }
  if (update.enqueued) {
    end_apply(update);
    advance();
    end_update();
  }
  return update;
}

void Updater::finish(StepUpdate& update, const ClipResult& clipped, const StepLoss& loss, int64_t step) {
  const bool late = !update.enqueued;
  Outcome outcome = s_.comm.once<Outcome>([&] {
    const Span span(s_.ctx.tracer, "update");
    Outcome judged = judge(loss, clipped);
    if (judged.made() && late) apply(update);
    return judged;
  });
  outcome.rows = update.rows;
  run_.at.window.lr = update.lr;
  if (late && outcome.made()) {
    end_apply(update);
    advance();
  }
  account(loss, outcome, step);
  if (late) end_update();
}

void Updater::end_update() {
  s_.params.clear_gradients();
  s_.sync->after_step(s_.ctx);
}

std::string Updater::finish_alone(const StepLoss& loss, const ClipResult& clipped, int64_t step,
                                  const std::function<void(std::optional<double> lr)>& apply) {
  const double lr = learning_rate(step);
  Outcome outcome = judge(loss, clipped);
  run_.at.window.lr = lr;
  if (outcome.made()) outcome.rows = sparse_rows(s_.params);
  apply(outcome.made() ? std::optional(lr) : std::nullopt);
  if (outcome.made()) advance();
  std::string failure;
  try {
    account(loss, outcome, step);
  } catch (const RunError& e) {  // all ranks must end with this error
    failure = e.what();
  }
  end_update();
  return failure;
}

void Updater::advance() {
  if (s_.carried) s_.carried->commit(s_.ctx);
  ++run_.at.updates;
}

void Updater::add_loss(const StepLoss& loss) {
  run_.at.window.positions += loss.positions;
  run_.at.window.padded += loss.padded;
  run_.at.window.nats += loss.nats;
  run_.at.window.tokens += loss.tokens;
  for (size_t i = 0; i < loss.terms.size(); ++i) run_.at.window.terms[run_.terms[i]] += loss.terms[i];
}

void Updater::account(const StepLoss& loss, const Outcome& outcome, int64_t step) {
  if (!outcome.made()) s_.sync->discard();
  if (!outcome.overflow.empty()) return handle_overflow(loss, outcome, step);
  run_.at.window.grad_norm = outcome.grad_norm;
  if (!outcome.divergence.empty()) return handle_divergence(outcome.divergence, step);
  if (const double factor = run_.scaling.passed(run_.at.loss_scale); factor != 1) s_.sync->rescale(factor);
  add_loss(loss);
  ++run_.at.window.updates;
  for (const auto& [name, rows] : outcome.rows) run_.at.window.rows[name] += rows;
  run_.at.skipped_in_a_row = 0;
}

std::map<std::string, int64_t> sparse_rows(const ParameterStore& params) {
  std::map<std::string, int64_t> rows;
  for (const std::string& name : params.names())
    for (const RowSparse& piece : params.at(name).grad().pieces)
      rows[name] += static_cast<int64_t>(piece.indices.size());
  return rows;
}

// The gradients are sums over ranks, equal on all ranks, and are not modified: the update applies the clipping factor.
void Updater::apply(StepUpdate& update) {
  StepRecord* const record = step_record(s_.ctx);
  if (record) record->begin_update();
  // A device gets all updates at once. The CPU's caches profit if a parameter is averaged and updated together.
  std::vector<ParameterUpdate> updates;
  std::vector<const Var*> changed;
  const auto enqueue = [&] {
    if (s_.shared->ema) s_.shared->ema->before_update(s_.ctx, changed);
    if (!updates.empty()) s_.shared->optimizer->update_all(s_.ctx, updates, update.lr, next_update());
    updates.clear();
    changed.clear();
  };
  for (const std::string& name : s_.summed.names()) {
    Var& param = s_.summed.at(name);
    if (param.grad().empty()) continue;
    updates.push_back({&param, update.measure.scale(name)});
    changed.push_back(&param);
    if (s_.ctx.device.kind == Device::Kind::cpu) enqueue();
  }
  for (const ShardStrategy* shard : s_.sync->shards())  // their owners update them in end_apply()
    for (const ParameterSpec& spec : shard->env().params) changed.push_back(&s_.params.at(spec.name));
  enqueue();
  if (record) record->end_update();
  if (s_.shared->ema) s_.shared->ema->count_update();
  update.enqueued = true;
}

// The part of the update that each rank makes itself, after apply() on the rank that makes it for all.
void Updater::end_apply(StepUpdate& update) {
  StepRecord* const record = step_record(s_.ctx);
  if (record) record->continue_update();
  for (ShardStrategy* shard : s_.sync->shards()) shard->update(s_.ctx, update.measure, update.lr, next_update());
  if (s_.replicas) s_.replicas->update(s_.ctx, update.own, update.lr, next_update());
  if (record) record->end_update();
  s_.sync->publish();
  update.measure.free_factors();
  update.own.free_factors();
}

// An overflow can be corrected by a lower loss scale: the loss is finite, but the gradients are not.
Outcome Updater::judge(const StepLoss& loss, const ClipResult& clipped) const {
  Outcome outcome{clipped.norm, {}, {}, {}};
  if (!clipped.finite && run_.scaling.dynamic() && std::isfinite(loss.nats)) outcome.overflow = clipped.not_finite;
  if (outcome.overflow.empty()) outcome.divergence = divergence(loss, clipped);
  return outcome;
}

void Updater::handle_overflow(const StepLoss& loss, const Outcome& outcome, int64_t step) {
  const double before = run_.at.loss_scale.scale, factor = run_.scaling.overflowed(run_.at.loss_scale, step);
  if (factor == 0) {
    run_.at.window.grad_norm = outcome.grad_norm;
    return handle_divergence(
        str("the gradients overflow at the least loss scale, ", number_text(before), " (loss_scale.min)"), step);
  }
  add_loss(loss);  // it is finite, although the gradients are not
  for (const std::string& name : outcome.overflow) {
    ++run_.at.loss_scale.census[name];
    ++run_.at.window.overflowed[name];
  }
  ++run_.at.window.overflows;
  s_.sync->rescale(factor);
  if (s_.carried) s_.carried->commit(s_.ctx);  // the forward pass was correct
  if (reports())
    log_debug(str("step ", step + 1, ": ", outcome.overflow.size(), " gradients overflowed (", outcome.overflow.front(),
                  "); the update is left out, the loss scale now ", number_text(run_.at.loss_scale.scale)));
}

std::string Updater::divergence(const StepLoss& loss, const ClipResult& clipped) const {
  if (loss.tokens == 0) return {};  // a worker that has no sub-batch in an epoch's last step
  const double nll = loss.nats / static_cast<double>(loss.tokens), limit = s_.recipe.train.max_loss;
  const double usual = default_max_loss(s_.data.vocabulary.size());
  if (!std::isfinite(nll)) return str("the loss is ", number_text(nll));
  if (!clipped.finite || !std::isfinite(clipped.norm)) return str("the gradient's norm is ", number_text(clipped.norm));
  if (limit > 0 && nll > limit) return str("the loss, ", nll, " nats per token, is above train.max_loss, ", limit);
  if (limit == 0 && nll > usual)
    return str("the loss, ", nll, " nats per token, is above ", usual,
               ", the default of train.max_loss for a vocabulary of ", count_text(s_.data.vocabulary.size()));
  return {};
}

void Updater::handle_divergence(const std::string& reason, int64_t step) {
  const std::string who = kind_ == StepOf::worker ? str("worker ", s_.ctx.rank, ", ") : "";
  const std::string what = str("[train] ", who, "step ", step + 1, ": ", reason);
  const std::string& policy = s_.recipe.train.on_divergence;
  if (policy == "stop")
    throw Diverged(what + "; stopped (train.on_divergence: stop). Try a lower optimizer.lr, or a clip");
  ++run_.at.window.skipped;
  if (++run_.at.skipped_in_a_row >= kMaxSkipsInARow)
    throw Diverged(str(what, "; stopped after ", run_.at.skipped_in_a_row, " updates left out in a row"));
  if (policy == "lower_lr") run_.at.lr_scale /= 2;
  if (s_.carried) s_.carried->discard();
  if (reports())
    log_warn(policy == "lower_lr" ? str(what, "; the update is left out, the learning rate now ", learning_rate(step))
                                  : what + "; the update is left out");
}

StartedStep start_step(Session& s, StepRunner& steps, Updater& updater, int64_t step) {
  const std::vector<Batch> share = steps.draw(step);
  const StepPlan plan = steps.begin(share, step);
  StartedStep started{steps.forward_backward(share, plan), {}};
  s.sync->finish();
  started.update = updater.start(step, steps);
  return started;
}

namespace {

// Collective.
std::vector<std::string> names_of_all(Communicator& comm, const std::vector<std::string>& own) {
  std::string lines;
  for (const std::string& name : own) lines += name + '\n';
  std::set<std::string> all;
  for (const std::string& text : comm.gather_texts(lines, "control")) {
    std::istringstream names(text);
    for (std::string name; std::getline(names, name);) all.insert(name);
  }
  return {all.begin(), all.end()};
}

}  // namespace

std::pair<StepLoss, ClipResult> results_of(const Session& s, StepRunner& steps, StartedStep& started) {
  ClipResult clipped = started.update.measure.result();  // before the loss is read: the host waits once for both
  const ClipResult own = started.update.own.result();
  steps.read_losses(started.own);
  started.own.squares = own.norm * own.norm;
  StepLoss all = steps.agree(started.own);
  if (!s.replicas) return {std::move(all), std::move(clipped)};
  clipped.norm = std::sqrt(clipped.norm * clipped.norm + all.squares);
  clipped.finite = std::isfinite(clipped.norm);
  if (clipped.finite) return {std::move(all), std::move(clipped)};
  clipped.not_finite.insert(clipped.not_finite.end(), own.not_finite.begin(), own.not_finite.end());
  clipped.not_finite = names_of_all(s.comm, clipped.not_finite);
  return {std::move(all), std::move(clipped)};
}

std::pair<StepLoss, GradientMeasure> worker_gradients(Session& s, StepRunner& steps, std::span<const Batch> share,
                                                      const StepPlan& plan) {
  StepLoss own = steps.forward_backward(share, plan);
  steps.read_losses(own);
  for (const std::string& name : s.params.names()) s.params.at(name).grad().coalesce(s.ctx);
  for (ServerStrategy* server : s.sync->servers()) server->select(s.ctx);
  return {std::move(own), GradientMeasure(s.ctx, s.params, s.shared->clip, steps.unscale())};
}

double Updater::learning_rate(int64_t step) const {
  const int64_t epoch = step / std::max<int64_t>(1, s_.batcher.steps_per_epoch());
  return run_.at.lr_scale * s_.schedule->rate({run_.at.updates, epoch, s_.shared->total_steps});
}

}  // namespace lmx
