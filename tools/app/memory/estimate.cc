// Estimates of memory: docs/memory.md compares them with measurements.
#include "app/memory/estimate.h"

#include <algorithm>
#include <map>

#include "base/text.h"
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

ExchangeMemory exchange_memory(const std::vector<UnitPlan>& exchange, int ranks) {
  ExchangeMemory memory;
  if (ranks == 1) return memory;
  int64_t kept = 0, owned = 0;
  for (const UnitPlan& unit : exchange) kept += unit.passing.residuals;
  owned = kept;
  for (const UnitPlan& unit : exchange) {
    kept += unit.kept.sums + unit.kept.gathered + unit.passing.residuals;
    owned += unit.passing.residuals;
    memory.stages.push_back({unit.params, kept + unit.passing.most, owned + unit.passing.owned});
    memory.communication = std::max(memory.communication, memory.stages.back().bytes);
  }
  return memory;
}

namespace {

// Returns the maximum memory for the logits of `tokens` features over `words` words. Includes the operands that are
// rounded for their products: features, the gradient of the logits and, if words are sampled, their rows.
int64_t loss_bytes(const Shares& s, int64_t width, DType compute) {
  const int64_t tokens = s.forward_tokens, words = s.samples > 0 ? s.samples + 1 : s.vocab;
  // The full softmax uses blocks of bounded memory, in which gradients replace the logits (ops/losses/output_layer.h).
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

// Bytes of a parameter's gradient after a pass, by the class that counts them. The gradient of the words that a model
// reads is the gradient of its input, an activation.
struct GradientBytes {
  int64_t gradients = 0, activations = 0;
  int64_t total() const { return gradients + activations; }
};
GradientBytes gradient_bytes(const ParameterSpec& spec, const Shares& shares) {
  const int64_t bytes = spec.shape.numel() * 4;
  if (spec.frozen) return {};
  if (!spec.sparse) return {bytes, 0};
  const int64_t row = bytes / spec.shape[0];
  if (spec.output) return {row * (shares.own_tokens + shares.samples * shares.passes()), 0};
  return {0, row * shares.own_tokens};
}

// UserError if the bytes of a pass would not fit into 64 bits. Attention has `length` weights for a token and head.
void check_pass(const Network& network, const Shares& shares, DType compute) {
  constexpr double kMost = 1e15;
  const auto bytes =
      static_cast<double>(network.model->activation_bytes_per_token(compute)) + static_cast<double>(shares.length);
  const auto tokens = static_cast<double>(std::max(shares.forward_tokens, shares.own_tokens));
  if (tokens * bytes > kMost)
    throw UserError(str("[memory] a step of ", count_text(shares.step_tokens),
                        " tokens would need petabytes for the activations of this model: batch.global, the length of a "
                        "sequence or a size of the model is too large"));
}

// The peak is either at the loss, with features and their gradient, or during the backward pass of the model.
PassMemory pass_memory(const Recipe& r, const Network& network, const Shares& shares) {
  PassMemory pass;
  int64_t kept = 0;
  const DType compute = compute_of(r);
  check_pass(network, shares, compute);
  const int64_t width = network.model->feature_size();
  const int64_t at_loss = shares.forward_tokens * (network.model->activation_bytes_per_token(compute) + 8 * width) +
                          loss_bytes(shares, width, compute);
  const int64_t length = std::min(shares.length, shares.forward_tokens);
  const int64_t in_model = network.model->activation_bytes(shares.forward_tokens / length, length, compute);
  for (const ParameterSpec& spec : network.specs) {
    pass.gradients += gradient_bytes(spec, shares).gradients;
    kept += gradient_bytes(spec, shares).activations;
  }
  pass.activations = std::max(at_loss, in_model) + state_bytes(network) * (shares.own_tokens / shares.length);
  pass.activations += kept - kept / shares.passes();  // of earlier passes
  pass.total = pass.activations + pass.gradients;
  const bool rounds_output = !shares.draws() && compute != DType::f32;
  pass.packed = network.model->copy_bytes(compute) + (rounds_output ? 2 * shares.vocab * width : 0);
  return pass;
}

// Gradients leave as their unit is exchanged, and the unit's own are released at the end.
void add_exchange(const Network& network, const Shares& shares, const ExchangeMemory& exchange, RankMemory& m) {
  std::map<std::string, int64_t> left;
  for (const ParameterSpec& spec : network.specs)
    m.after_passes += left[spec.name] = gradient_bytes(spec, shares).total();
  int64_t gradients = m.after_passes;
  if (exchange.stages.empty())
    m.exchange.push_back({gradients + exchange.communication, gradients + exchange.communication});
  for (const ExchangeMemory::Stage& stage : exchange.stages) {
    m.exchange.push_back({gradients + stage.bytes, gradients + stage.owned});
    for (const std::string& name : stage.params) gradients -= left.at(name);
  }
}

}  // namespace

int64_t RankMemory::in_exchange() const {
  int64_t most = 0;
  for (const Stage& stage : exchange) most = std::max(most, stage.all);
  return most;
}

// A rank that has computed its passes waits with its gradients until all ranks have, and only the ranks that compute
// have activations.
int64_t RankMemory::in_process(int64_t ranks, int64_t at_once) const {
  int64_t most =
      std::max(ranks * after_passes + at_once * std::max<int64_t>(0, in_passes - after_passes), at_once * evaluation);
  for (const Stage& stage : exchange) most = std::max(most, ranks * stage.owned + stage.all - stage.owned);
  return shared() + most;
}

RankMemory rank_memory(const Recipe& r, const Network& network, const Shares& shares, const ExchangeMemory& exchange,
                       const PassMemory* measured) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(r.optimizer, "optimizer");
  const PassMemory pass = measured ? *measured : pass_memory(r, network, shares);
  RankMemory m;
  for (const ParameterSpec& spec : network.specs) {
    m.parameters += spec.shape.numel() * 4;
    if (!spec.frozen) m.optimizer += optimizer->state_bytes(spec);
  }
  if (r.train.ema > 0) m.optimizer += m.parameters;
  m.gradients = pass.gradients;
  m.copies = pass.packed;
  m.evaluation = evaluation_bytes(r, shares, network.model->feature_size(), compute_of(r));
  m.training = pass.activations;
  m.activations = std::max(pass.activations, m.evaluation);
  m.in_passes = pass.total;
  m.communication = exchange.communication;
  add_exchange(network, shares, exchange, m);
  m.in_turn = shares.ranks > 1 && in_one_process(r.comm, "comm");
  return m;
}

}  // namespace lmx
