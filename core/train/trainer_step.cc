// One step of the training loop: the batch, the gradients, the update, and the handling of a failed update.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/model_extensions.h"
#include "lmx/pair_batches.h"
#include "lmx/plugin.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace lmx::train {
namespace {

constexpr int64_t kMaxSkipsInARow = 20;  // after more skips the parameters themselves are probably invalid

// sum += terms. An empty sum means zeros.
void add_terms(std::vector<double>& sum, std::span<const double> terms) {
  sum.resize(std::max(sum.size(), terms.size()));
  for (size_t i = 0; i < terms.size(); ++i) sum[i] += terms[i];
}

}  // namespace

std::vector<Batch> Trainer::draw(int64_t step) const {
  const Span span(s_.ctx.tracer, "batch");
  const int64_t whole = s_.recipe.batch.micro > 0 ? s_.recipe.batch.micro : s_.sequences;
  const int64_t micro = s_.sub_batches() ? 1 : whole;
  std::vector<Batch> share;
  const PluginInfo& plugin = Registry::instance().find(PluginKind::batcher, s_.recipe.batcher, "batcher");
  for (int64_t done = 0; done < s_.sequences; done += micro) {
    Batch batch = in_plugin(plugin, "batch()", [&] {
      return s_.batcher.batch(step, s_.first_sequence + done, std::min(micro, s_.sequences - done));
    });
    if (batch.sequences() > 0) share.push_back(std::move(batch));  // an epoch's last step may have fewer batches
  }
  return share;
}

StepPlan Trainer::begin_step(std::span<const Batch> share, int64_t step) {
  const RandomKey key(static_cast<uint64_t>(s_.recipe.seed));
  const auto number = static_cast<uint64_t>(step);
  StepPlan plan;
  plan.step = step;
  plan.sampler_key = key.fold("sampler").fold(number);
  // Workers do not run in lockstep, so equal samples on all ranks have no benefit.
  if (s_.asynchronous() && s_.ctx.rank > 0)
    plan.sampler_key = plan.sampler_key.fold(static_cast<uint64_t>(s_.ctx.rank));
  s_.ctx.key = key.fold("step").fold(number);
  s_.comm.set_step(step);
  for (const Batch& batch : share) check_shape(batch);
  mean_over_ = gradient_terms(share, step);
  s_.sync->begin_step(s_.ctx, s_.params, share, plan);
  return plan;
}

// The gradients of the micro-batches are summed. Each is scaled by the count of the whole step, so that the sum is the
// gradient of the whole batch.
Trainer::StepLoss Trainer::forward_backward(std::span<const Batch> share, const StepPlan& plan) {
  StepLoss sum;
  const auto begin = std::chrono::steady_clock::now();
  const auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  timeline_.clear();
  for (const Batch& batch : share) {
    const double started = now();
    const StepLoss own = micro_batch(batch, plan, &batch == &share.back());
    sum.nats += own.nats;
    add_terms(sum.terms, own.terms);
    sum.tokens += own.tokens;
    if (!s_.sub_batches()) continue;
    const PairShape shape = shape_of(batch);
    sum.positions += shape.tokens();
    sum.padded += shape.padded();
    timeline_.push_back({started, now(), batch.tokens()});
    ++durations_[duration_bin(timeline_.back().end - started)];
  }
  sum.seconds = now();
  return sum;
}

Trainer::StepLoss Trainer::micro_batch(const Batch& batch, const StepPlan& plan, bool last) {
  tape_.on_ready = nullptr;
  if (last && !s_.asynchronous()) tape_.on_ready = [this](const Var& param) { s_.sync->grad_ready(param); };
  ModelState state =
      s_.carried ? s_.carried->gather(s_.ctx, batch) : s_.network.initial_state(s_.ctx, batch.sequences());
  LossTerms terms(term_names_);
  LossValue loss;
  {
    const Span span(s_.ctx.tracer, "forward");
    const Var features = in_plugin(*s_.network.plugin, "forward()", [&] {
      return forward_training(*s_.network.model, s_.ctx, s_.params, batch, state, terms);
    });
    loss = s_.network.loss->forward(s_.ctx, s_.params, features, batch.targets.reshape({batch.tokens()}), plan);
  }
  {
    const Span span(s_.ctx.tracer, "backward");
    // This runs the backward closures that the model has recorded.
    in_plugin(*s_.network.plugin, "backward of a batch", [&] {
      tape_.backward(s_.ctx, terms.total(s_.ctx, loss.loss), scaling_.seed(at_.loss_scale, mean_over_));
    });
  }
  if (s_.carried) s_.carried->stage(batch, state);
  return {loss.nats, terms.values(), batch.tokens()};
}

// Returns the number by which a step's gradient is divided to get the mean. The mean is over the batch of all ranks, or
// over the batch of one worker.
double Trainer::gradient_terms(std::span<const Batch> share, int64_t step) const {
  const bool per_token = s_.network.loss->normalize() == "token";
  StepSize size;
  if (!s_.asynchronous()) size = s_.size_of_step(step);
  for (const Batch& batch : share) {
    if (!s_.asynchronous()) break;
    size.tokens += batch.tokens();
    size.sequences += batch.sequences();
  }
  return static_cast<double>(std::max<int64_t>(1, per_token ? size.tokens : size.sequences));
}

double Trainer::unscale() const {
  return scaling_.active() ? scaling_.unscale(at_.loss_scale, mean_over_) : 1;
}

// The batcher may choose any length up to sequence_length(), for which memory and evaluation are planned.
void Trainer::check_shape(const Batch& batch) const {
  if (s_.sub_batches()) return;
  const Shape &in = batch.inputs.shape(), &out = batch.targets.shape();
  if (in.rank() == 2 && out == in && in[1] > 0 && in[1] <= s_.batcher.sequence_length()) return;
  throw UserError(str("[batcher] ", component_name(s_.recipe.batcher), " gives inputs ", in, " and targets ", out,
                      "; both must be (sequences, tokens) with 1 to ", s_.batcher.sequence_length(),
                      " tokens, its sequence_length()"));
}

// Checks the batcher's step_size(): the gradients were already divided by it, before the step's batches were read.
void Trainer::check_size(const StepLoss& all, int64_t step) const {
  const StepSize said = s_.size_of_step(step);
  if (all.tokens == said.tokens) return;
  throw UserError(str("[batcher] ", component_name(s_.recipe.batcher), ": the batches of step ", step + 1, " hold ",
                      all.tokens, " targets, and step_size() says ", said.tokens,
                      "; override step_size() where sequences are shorter than sequence_length(), ",
                      s_.batcher.sequence_length()));
}

Trainer::StepLoss Trainer::agree(const StepLoss& own) {
  std::vector<double> numbers{own.nats, static_cast<double>(own.tokens), static_cast<double>(SignalGuard::received())};
  if (s_.sub_batches())
    numbers.insert(numbers.end(), {static_cast<double>(own.positions), static_cast<double>(own.padded), own.seconds});
  const size_t first_term = numbers.size(), width = first_term + term_names_.size();
  numbers.insert(numbers.end(), own.terms.begin(), own.terms.end());
  numbers.resize(width);
  const std::vector<double> all = s_.comm.gather_numbers(numbers, "control");
  StepLoss sum;
  for (size_t i = 0; i < all.size(); i += width) {
    sum.nats += all[i];
    sum.tokens += static_cast<int64_t>(all[i + 1]);
    signal_ = std::max(signal_, static_cast<int>(all[i + 2]));
    add_terms(sum.terms, std::span(all).subspan(i + first_term, term_names_.size()));
    if (!s_.sub_batches()) continue;
    sum.positions += static_cast<int64_t>(all[i + 3]);
    sum.padded += static_cast<int64_t>(all[i + 4]);
    sum.seconds += all[i + 5] / static_cast<double>(s_.comm.size());
    sum.slowest = std::max(sum.slowest, all[i + 5]);
  }
  return sum;
}

void Trainer::update(const StepLoss& loss) {
  const double lr = learning_rate(at_.step);
  if (loss.seconds > 0) spread_ += (loss.slowest - loss.seconds) / loss.seconds;
  const Outcome outcome = s_.comm.once<Outcome>([&] { return clip_and_apply(loss, lr); });
  at_.window.lr = lr;
  account(loss, outcome, at_.step);
  s_.params.clear_gradients();
  s_.sync->after_step(s_.ctx);
}

void Trainer::add_loss(const StepLoss& loss) {
  at_.window.positions += loss.positions;
  at_.window.padded += loss.padded;
  at_.window.nats += loss.nats;
  at_.window.tokens += loss.tokens;
  for (size_t i = 0; i < loss.terms.size(); ++i) at_.window.terms[term_names_[i]] += loss.terms[i];
}

void Trainer::account(const StepLoss& loss, const Outcome& outcome, int64_t step) {
  if (!outcome.made()) s_.sync->discard();
  if (!outcome.overflow.empty()) {
    add_loss(loss);  // the loss is finite, although the gradients are not
    return handle_overflow(outcome, step);
  }
  at_.window.grad_norm = outcome.grad_norm;
  if (!outcome.divergence.empty()) return handle_divergence(outcome.divergence, step);
  if (s_.carried) s_.carried->commit();
  if (const double factor = scaling_.passed(at_.loss_scale); factor != 1) s_.sync->rescale(factor);
  add_loss(loss);
  ++at_.window.updates;
  ++at_.updates;
  for (const auto& [name, rows] : outcome.rows) at_.window.rows[name] += rows;
  at_.skipped_in_a_row = 0;
}

// The gradients are sums over ranks, equal on all ranks, and are not modified: the update applies the clipping factor.
Trainer::Outcome Trainer::clip_and_apply(const StepLoss& loss, double lr) {
  const Span span(s_.ctx.tracer, "update");
  for (const std::string& name : s_.params.names()) s_.params.at(name).grad().coalesce(s_.ctx);
  const ClipResult clipped = measure_gradients(s_.ctx, s_.params, s_.shared->clip, unscale());
  Outcome outcome = judge(loss, clipped);
  if (!outcome.made()) return outcome;
  for (const std::string& name : s_.params.names()) {
    Var& param = s_.params.at(name);
    const bool owned = s_.sync->owns_update(param);
    if (param.grad().empty() && !owned) continue;
    if (s_.shared->ema) s_.shared->ema->before_update(param);
    if (owned) continue;
    for (const RowSparse& piece : param.grad().pieces) outcome.rows[name] += static_cast<int64_t>(piece.indices.size());
    s_.shared->optimizer->update(s_.ctx, param, lr, at_.updates + 1, clipped.factor(name));
  }
  if (s_.shared->ema) s_.shared->ema->count_update();
  return outcome;
}

// An overflow can be corrected by a lower loss scale: the loss is finite, but the gradients are not.
Trainer::Outcome Trainer::judge(const StepLoss& loss, const ClipResult& clipped) const {
  Outcome outcome{clipped.norm, {}, {}, {}};
  if (!clipped.finite && scaling_.dynamic() && std::isfinite(loss.nats))
    outcome.overflow = overflowed_tensors(s_.params);
  if (outcome.overflow.empty()) outcome.divergence = divergence(loss, clipped);
  return outcome;
}

void Trainer::handle_overflow(const Outcome& outcome, int64_t step) {
  const double before = at_.loss_scale.scale, factor = scaling_.overflowed(at_.loss_scale, step);
  for (const std::string& name : outcome.overflow) {
    ++at_.loss_scale.census[name];
    ++at_.window.overflowed[name];
  }
  if (factor == 0)
    return handle_divergence(
        str("the gradients overflow at the least loss scale, ", number_text(before), " (loss_scale.min)"), step);
  ++at_.window.overflows;
  s_.sync->rescale(factor);
  if (s_.carried) s_.carried->commit();  // the forward pass was correct
  if (s_.leads() || s_.asynchronous())
    log_debug(str("step ", step + 1, ": ", outcome.overflow.size(), " gradients overflowed (", outcome.overflow.front(),
                  "); the update is left out, the loss scale now ", number_text(at_.loss_scale.scale)));
}

std::string Trainer::divergence(const StepLoss& loss, const ClipResult& clipped) const {
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

void Trainer::handle_divergence(const std::string& reason, int64_t step) {
  const std::string who = s_.asynchronous() ? str("worker ", s_.ctx.rank, ", ") : "";
  const std::string what = str("[train] ", who, "step ", step + 1, ": ", reason);
  const std::string& policy = s_.recipe.train.on_divergence;
  if (policy == "stop") stop(what + "; stopped (train.on_divergence: stop). Try a lower optimizer.lr, or a clip");
  ++at_.window.skipped;
  if (++at_.skipped_in_a_row >= kMaxSkipsInARow)
    stop(str(what, "; stopped after ", at_.skipped_in_a_row, " updates left out in a row"));
  if (policy == "lower_lr") at_.lr_scale /= 2;
  if (s_.carried) s_.carried->discard();
  if (s_.leads() || s_.asynchronous())
    log_warn(policy == "lower_lr" ? str(what, "; the update is left out, the learning rate now ", learning_rate(step))
                                  : what + "; the update is left out");
}

double Trainer::learning_rate(int64_t step) const {
  const int64_t epoch = step / std::max<int64_t>(1, s_.batcher.steps_per_epoch());
  return at_.lr_scale * s_.schedule->rate({at_.updates, epoch, s_.shared->total_steps});
}

}  // namespace lmx::train
