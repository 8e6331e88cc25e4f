#include "train/loop/step.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/counting/device.h"
#include "data/passes.h"
#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/pair_batches.h"
#include "lmx/plugin.h"
#include "train/signals.h"

namespace lmx {
namespace {

// sum += terms. An empty sum means zeros.
void add_terms(std::vector<double>& sum, std::span<const double> terms) {
  sum.resize(std::max(sum.size(), terms.size()));
  for (size_t i = 0; i < terms.size(); ++i) sum[i] += terms[i];
}

}  // namespace

StepRunner::StepRunner(RunState& run, StepOf kind) : run_(run), s_(run.s), kind_(kind) {
  s_.ctx.tape = &tape_;
}

std::vector<Batch> StepRunner::draw(int64_t step) const {
  const Span span(s_.ctx.tracer, "batch");
  const int64_t whole = s_.recipe.batch.micro > 0 ? s_.recipe.batch.micro : s_.sequences;
  const int64_t micro = s_.sub_batches() ? 1 : whole;
  std::vector<Batch> share;
  const PluginInfo& plugin = Registry::instance().find(PluginKind::batcher, s_.recipe.batcher, "batcher");
  for (int64_t done = 0; done < s_.sequences; done += micro) {
    const int64_t first = s_.first_sequence + done, count = std::min(micro, s_.sequences - done);
    Batch batch = in_plugin(plugin, "batch()", [&] { return s_.batcher.batch(step, first, count); });
    if (const std::string fault = batch.fault(first, count, s_.batcher.sequence_length()); !fault.empty())
      throw UserError(str("[batcher] ", component_name(s_.recipe.batcher), " gives ", fault));
    if (s_.shared->separator >= 0) separate_documents(batch, s_.shared->separator);
    if (batch.sequences() > 0) share.push_back(std::move(batch));  // an epoch's last step may have fewer batches
  }
  const int64_t tokens = s_.recipe.batch.micro_tokens;
  return s_.sub_batches() && tokens > 0 ? in_passes(share, tokens, s_.ctx.host) : share;
}

StepPlan StepRunner::begin(std::span<const Batch> share, int64_t step) {
  const RandomKey key(static_cast<uint64_t>(s_.recipe.seed));
  const auto number = static_cast<uint64_t>(step);
  StepPlan plan;
  plan.step = step;
  plan.sampler_key = key.fold("sampler").fold(number);
  // Workers do not run in lockstep, so equal samples on all ranks have no benefit.
  if (kind_ == StepOf::worker && s_.ctx.rank > 0)
    plan.sampler_key = plan.sampler_key.fold(static_cast<uint64_t>(s_.ctx.rank));
  s_.ctx.key = key.fold("step").fold(number);
  StepSize own;
  for (const Batch& batch : share) own = {own.tokens + batch.tokens(), own.sequences + batch.sequences()};
  own_terms_ = terms_of(own);
  mean_over_ = kind_ == StepOf::group ? terms_of(s_.size_of_step(step)) : own_terms_;
  s_.sync->begin_step(s_.ctx, s_.params, share, plan);
  return plan;
}

StepLoss StepRunner::forward_backward(std::span<const Batch> share, const StepPlan& plan) {
  StepLoss sum;
  const auto begin = std::chrono::steady_clock::now();
  const auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  for (const Batch& batch : share) {
    const double started = now();
    sum.pending.push_back(micro_batch(batch, plan, &batch == &share.back()));
    if (!s_.sub_batches()) continue;
    read_losses(sum);  // now, because the time of each sub-batch is measured
    const PairShape shape = shape_of(batch);
    sum.positions += shape.tokens();
    sum.padded += shape.padded();
    sum.timeline.push_back({started, now(), batch.tokens()});
  }
  sum.seconds = now();
  return sum;
}

void StepRunner::read_losses(StepLoss& sum) const {
  for (const PendingLoss& one : sum.pending) {
    sum.nats += one.nats.value();
    add_terms(sum.terms, one.terms.values(s_.ctx));
    sum.tokens += one.tokens;
  }
  sum.pending.clear();
}

PendingLoss StepRunner::micro_batch(const Batch& batch, const StepPlan& plan, bool last) {
  tape_.on_ready = nullptr;
  StepRecord* const record = step_record(s_.ctx);
  if (record) record->begin_pass(batch.tokens());
  if (last && kind_ == StepOf::group)
    tape_.on_ready = [this, record](const Var& param) {
      const auto exchange = [&] { s_.sync->grad_ready(param); };
      record ? record->ready(param.name(), exchange) : exchange();
    };
  ModelState state =
      s_.carried ? s_.carried->gather(s_.ctx, batch) : s_.network.initial_state(s_.ctx, batch.sequences());
  LossTerms terms(run_.terms);
  LossValue loss;
  {
    const Span span(s_.ctx.tracer, "forward");
    const Var features = in_plugin(*s_.network.plugin, "forward()", [&] {
      return forward_training(*s_.network.model, s_.ctx, s_.params, batch, state, terms);
    });
    loss = s_.network.loss->forward(s_.ctx, s_.params, features, batch.targets.reshape({batch.tokens()}), plan);
  }
  if (record) record->begin_backward();
  {
    const Span span(s_.ctx.tracer, "backward");
    // This runs the backward closures that the model has recorded.
    in_plugin(*s_.network.plugin, "backward of a batch", [&] {
      tape_.backward(s_.ctx, terms.total(s_.ctx, loss.loss), run_.scaling.seed(run_.at.loss_scale, mean_over_));
    });
  }
  if (record) record->end_pass();
  if (s_.carried) s_.carried->stage(batch, state);
  return {s_.ctx.read<double>(loss.nats), std::move(terms), batch.tokens()};
}

// Returns the number by which the sum over a batch is divided to get the mean.
double StepRunner::terms_of(const StepSize& size) const {
  const bool per_token = s_.network.loss->normalize() == "token";
  return static_cast<double>(std::max<int64_t>(1, per_token ? size.tokens : size.sequences));
}

double StepRunner::unscale() const {
  return run_.scaling.active() ? run_.scaling.unscale(run_.at.loss_scale, mean_over_) : 1;
}

double StepRunner::unscale_own() const {
  return unscale() * (mean_over_ / own_terms_);
}

void StepRunner::check_size(const StepLoss& all, int64_t step) const {
  const StepSize said = s_.size_of_step(step);
  if (all.tokens == said.tokens) return;
  throw UserError(str("[batcher] ", component_name(s_.recipe.batcher), ": the batches of step ", step + 1, " hold ",
                      all.tokens, " targets, but step_size() returns ", said.tokens,
                      "; override step_size() if sequences are shorter than sequence_length(), ",
                      s_.batcher.sequence_length()));
}

StepLoss StepRunner::agree(const StepLoss& own) {
  std::vector<double> numbers{own.nats, static_cast<double>(own.tokens), static_cast<double>(SignalGuard::received())};
  if (s_.replicas) numbers.push_back(own.squares);
  const size_t first_time = numbers.size();
  if (s_.sub_batches())
    numbers.insert(numbers.end(), {static_cast<double>(own.positions), static_cast<double>(own.padded), own.seconds});
  const size_t first_term = numbers.size(), width = first_term + run_.terms.size();
  numbers.insert(numbers.end(), own.terms.begin(), own.terms.end());
  numbers.resize(width);
  const std::vector<double> all = s_.comm.gather_numbers(numbers, "control");
  StepLoss sum;
  for (size_t i = 0; i < all.size(); i += width) {
    sum.nats += all[i];
    sum.tokens += static_cast<int64_t>(all[i + 1]);
    run_.signal = std::max(run_.signal, static_cast<int>(all[i + 2]));
    add_terms(sum.terms, std::span(all).subspan(i + first_term, run_.terms.size()));
    if (s_.replicas) sum.squares += all[i + 3] / static_cast<double>(s_.comm.size());
    if (!s_.sub_batches()) continue;
    const double* const times = &all[i + first_time];
    sum.positions += static_cast<int64_t>(times[0]);
    sum.padded += static_cast<int64_t>(times[1]);
    sum.seconds += times[2] / static_cast<double>(s_.comm.size());
    sum.slowest = std::max(sum.slowest, times[2]);
  }
  return sum;
}

}  // namespace lmx
