// Estimates of memory: docs/performance.md compares them with measurements.
#include "app/memory/estimate.h"

#include <algorithm>

#include "data/data_config.h"
#include "lmx/matmul.h"
#include "lmx/optim.h"
#include "lmx/row_sampling.h"
#include "ops/losses/output_layer.h"
#include "recipe/comm_config.h"

namespace lmx {

using namespace train;

Shares shares_of(const Recipe& r, const BatchPlan& batch, const LossPlan& loss, int ranks) {
  const bool pairs = batch.items == Items::sub_batches;
  const int64_t sequences = (r.batch.global + ranks - 1) / ranks, length = batch.item_tokens;
  const int64_t pass = pairs ? r.batch.micro_tokens : 0;
  return {.ranks = ranks,
          .step_tokens = r.batch.global * length,
          .vocab = data::vocabulary_size(r.data),
          .sequences = sequences,
          .length = length,
          .own_tokens = sequences * length,
          .forward_tokens =
              pass > 0 ? std::min(pass, sequences * length) : forward_shape(r, ranks, batch).sequences * length,
          .samples = loss.samples,
          .blocks = loss.blocks,
          .twice = loss.keeps_gradients,
          .pairs = pairs};
}

WordLaw zipf_law() {
  return [](int64_t tokens, int64_t vocabulary) { return expected_words(tokens, vocabulary); };
}

TableRows table_rows(const SyncRules& sync, const Network& network, const Shares& s, const ParameterSpec& spec,
                     const WordLaw& law) {
  const auto of_output = [](const ParameterSpec& p) { return p.name.starts_with("softmax"); };
  const bool tied = std::none_of(network.specs.begin(), network.specs.end(), of_output);
  const int64_t samples = tied || of_output(spec) ? s.samples : 0;  // an input table has no candidates
  const int64_t own = s.own_tokens + samples, all = s.step_tokens + sync.candidate_sets() * samples;
  return {own, law(own, spec.shape[0]), law(all, spec.shape[0]), s.own_tokens};
}

std::vector<UnitPlan> exchange_of(const SyncRules& sync, const Network& network, const Shares& s, const WordLaw& law) {
  return sync.plan(network.specs, [&](const ParameterSpec& spec) { return table_rows(sync, network, s, spec, law); });
}

int64_t communication_bytes(const std::vector<UnitPlan>& exchange, int ranks) {
  int64_t kept = 0, passing = 0;
  for (const UnitPlan& unit : exchange) {
    // A rank receives about as much as it sends, and stores its own part in addition. Data that it keeps is not counted
    // twice.
    const int64_t moved = unit.sent + unit.sent / (ranks - 1);
    kept += unit.kept.sums + unit.kept.gathered;
    passing = std::max(passing, unit.kept.gathered > 0 ? unit.kept.sums : moved);
  }
  return kept + passing;
}

namespace {

// Returns the maximum memory for the logits of `tokens` features over `words` words. Includes the operands that are
// rounded for their products: features, the gradient of the logits and, if words are sampled, their rows.
int64_t loss_bytes(const Shares& s, int64_t width, DType compute) {
  const int64_t tokens = s.forward_tokens, words = s.samples > 0 ? s.samples + 1 : s.vocab;
  // The full softmax uses blocks of bounded memory, in which gradients replace the logits (core/ops/output_layer.h).
  const int64_t rows = s.blocks ? ops::logit_block_rows(tokens, words, width, true) : tokens;
  const DType type = operand_type(compute);  // data type of the gradient of the logits
  const auto kept = static_cast<int64_t>(size_of(compute)), operand = static_cast<int64_t>(size_of(type));
  int64_t bytes = (s.twice ? 8 : 4) * rows * words + (s.draws() ? kept * words * width : 0);
  if (compute != DType::f32) bytes += kept * tokens * width + operand * rows * words;
  return bytes + std::max(gemm_scratch_bytes(type, compute, rows, width, words, false),
                          gemm_scratch_bytes(type, compute, words, width, rows, true));
}

// Validation computes the logits of all words, even if training samples them. Its sequences are also divided among
// ranks.
int64_t evaluation_bytes(const Recipe& r, const Shares& s, int64_t width, DType compute) {
  const int64_t tokens =
      s.pairs ? r.train.eval_batch * kSentence : (r.train.eval_batch + s.ranks - 1) / s.ranks * s.length;
  const int64_t rows = ops::logit_block_rows(tokens, s.vocab, width, false);
  int64_t bytes = 4 * (tokens * width + rows * s.vocab);
  if (compute != DType::f32) bytes += 2 * (tokens + s.vocab) * width;
  return bytes + gemm_scratch_bytes(compute, compute, rows, s.vocab, width, false);
}

// Returns the bytes of the recurrent state that a model carries for one sequence. A memory of past positions can be
// most of it.
int64_t state_bytes(const Network& network) {
  if (network.model->translates()) return 0;
  Context ctx;
  int64_t bytes = 0;
  for (const auto& [name, t] : network.initial_state(ctx, 1))
    bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  return bytes;
}

}  // namespace

RankMemory rank_memory(const Recipe& r, const Network& network, const Shares& shares, int64_t communication) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(r.optimizer, "optimizer");
  RankMemory m;
  for (const ParameterSpec& spec : network.specs) {
    const int64_t bytes = spec.shape.numel() * 4;
    m.parameters += bytes;
    if (spec.frozen) continue;
    m.optimizer += optimizer->state_bytes(spec);
    // A row-sparse gradient has at most one row for each token of the rank's step and for each sampled word.
    const int64_t rows = std::min(spec.shape[0], shares.own_tokens + shares.samples);
    m.gradients += spec.sparse ? bytes / spec.shape[0] * rows : bytes;
  }
  // The peak is either at the loss, with features and their gradient, or during the backward pass of the model.
  const DType compute = compute_of(r);
  const int64_t width = network.model->feature_size();
  const int64_t at_loss = shares.forward_tokens * (network.model->activation_bytes_per_token(compute) + 8 * width) +
                          loss_bytes(shares, width, compute);
  const int64_t length = std::min(shares.length, shares.forward_tokens);
  const int64_t in_model = network.model->activation_bytes(shares.forward_tokens / length, length, compute);
  m.activations = std::max({at_loss, in_model, evaluation_bytes(r, shares, width, compute)}) +
                  state_bytes(network) * (shares.own_tokens / shares.length);
  if (r.train.ema > 0) m.optimizer += m.parameters;
  const bool rounds_output = !shares.draws() && compute != DType::f32;
  m.copies = network.model->copy_bytes(compute) + (rounds_output ? 2 * shares.vocab * width : 0);
  m.communication = communication;
  m.in_turn = shares.ranks > 1 && in_one_process(r.comm, "comm");
  return m;
}

}  // namespace lmx
