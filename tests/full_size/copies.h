// A batch of the true size at the price of one of its sequences: where every sequence of a rank's share is a copy of
// the first one, model and loss read that one and the loss is multiplied by the number of copies. Losses and gradients
// are those of the whole share, so what the trainer scales, sums over ranks and sends is as large as it would be.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/ops.h"

namespace lmx::train {

// Throws unless `all` (n) consists of copies of its first `one` ids.
inline void require_copies(const Tensor& all, int64_t one) {
  const auto ids = all.values<int32_t>();
  for (size_t i = static_cast<size_t>(one); i < ids.size(); ++i)
    LMX_CHECK(ids[i] == ids[i - static_cast<size_t>(one)], "id ", i, " is not that of a copy");
}

// The first of the sequences in `batch`.
inline Batch first_sequence(const Batch& batch) {
  Batch one;
  one.slots = {batch.slots.at(0)};
  one.fresh = {batch.fresh.at(0)};
  const int64_t rows = batch.lengths.empty() ? 1 : batch.lengths[0];
  one.inputs = batch.inputs.slice(0, rows);
  one.targets = batch.targets.slice(0, rows);
  require_copies(batch.inputs, one.tokens());
  require_copies(batch.targets, one.tokens());
  if (batch.lengths.empty()) return one;
  one.lengths = {batch.lengths[0]};
  one.source_lengths = {batch.source_lengths[0]};
  one.source = batch.source.slice(0, batch.source_lengths[0]);
  require_copies(batch.source, batch.source_lengths[0]);
  return one;
}

class CopiesModel final : public Model {
 public:
  explicit CopiesModel(std::unique_ptr<Model> inner) : inner_(std::move(inner)) {}
  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const override {
    if (!ctx.training || batch.sequences() < 2) return inner_->forward(ctx, params, batch, state);
    ModelState first;
    for (auto& [name, rows] : state) first[name] = rows.slice(0, 1).clone();
    const Var features = inner_->forward(ctx, params, first_sequence(batch), first);
    for (auto& [name, rows] : state)
      for (int64_t b = 0; b < rows.dim(0); ++b) rows.slice(b, b + 1).copy_from(first.at(name));
    return features;
  }
  std::vector<ParameterSpec> parameters() const override { return inner_->parameters(); }
  bool translates() const override { return inner_->translates(); }
  std::string output_table() const override { return inner_->output_table(); }
  ModelState initial_state(Context& ctx, int64_t n) const override { return inner_->initial_state(ctx, n); }
  int64_t feature_size() const override { return inner_->feature_size(); }

 private:
  std::unique_ptr<Model> inner_;
};

class CopiesLoss final : public Loss {
 public:
  explicit CopiesLoss(std::unique_ptr<Loss> inner) : inner_(std::move(inner)) {}
  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan& plan) const override {
    const int64_t rows = features.shape()[0], copies = targets.numel() / rows;
    const LossValue one = inner_->forward(ctx, params, features, targets.slice(0, rows), plan);
    const auto factor = static_cast<double>(copies);
    return {scale(ctx, one.loss, factor), scale(ctx, Var(one.nats), factor).value()};
  }
  std::vector<ParameterSpec> parameters() const override { return inner_->parameters(); }
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features,
                  const Tensor& targets) const override {
    return inner_->evaluate(ctx, params, features, targets);
  }
  Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const override {
    return inner_->logits(ctx, params, features);
  }
  const std::string& normalize() const override { return inner_->normalize(); }
  bool draws_candidates() const override { return inner_->draws_candidates(); }

 private:
  std::unique_ptr<Loss> inner_;
};

}  // namespace lmx::train
