// lmx run --dry-run: what a recipe will take, and whether its data is there.
#include <algorithm>
#include <map>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/row_sampling.h"
#include "train/comm_config.h"
#include "train/components.h"

namespace lmx {
namespace {

using namespace train;

int64_t integer_of(const Node& config, const char* key, int64_t otherwise) {
  const Node* node = config.find(key);
  return node ? parse_int(node->text).value_or(otherwise) : otherwise;
}

struct Shares {
  int64_t step_tokens = 0, forward_tokens = 0, vocab = 0;
  int64_t samples = 0;  // words that a loss draws beside the targets; 0: it takes all
  bool blocks = false;  // logits are made in blocks of bounded memory
};

Shares shares_of(const Recipe& r) {
  const int64_t length = integer_of(full_component(PluginKind::batcher, r.batcher, "batcher"), "sequence_length", 1);
  const int64_t forward = r.batch.micro > 0 ? r.batch.micro : r.batch.global;
  const Node loss = full_loss_config(r.loss, "loss");
  Shares s{.step_tokens = r.batch.global * length, .forward_tokens = forward * length, .vocab = vocabulary_size(r.data)};
  s.samples = integer_of(loss, "samples", 0);
  s.blocks = s.samples == 0;
  for (const char* key : {"p", "q", "mu"})  // two_stage_softmax
    if (const Node* percent = loss.find(key))
      s.samples += rows_of_percent(parse_double(percent->text).value_or(0), s.vocab);
  s.samples = std::min(s.samples, s.vocab);
  return s;
}

// Parameters by the first part of their names, in order of declaration.
std::string parameter_lines(const Network& network, int64_t& total) {
  std::vector<std::pair<std::string, int64_t>> groups;
  for (const ParameterSpec& spec : network.specs) {
    const std::string group = spec.name.substr(0, spec.name.find('.'));
    if (groups.empty() || groups.back().first != group) groups.emplace_back(group, 0);
    groups.back().second += spec.shape.numel();
    total += spec.shape.numel();
  }
  std::string text;
  for (const auto& [group, count] : groups) text += str("  ", group, " ", count_text(count), "\n");
  return text;
}

std::string memory_lines(const Recipe& r, const Network& network, const Shares& shares) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(r.optimizer, "optimizer");
  int64_t parameters = 0, gradients = 0, state = 0;
  for (const ParameterSpec& spec : network.specs) {
    const int64_t bytes = spec.shape.numel() * 4;
    parameters += bytes;
    state += optimizer->state_bytes(spec);
    // A row-sparse gradient has at most a row for each token of the step and each sampled word.
    const int64_t rows = std::min(spec.shape[0], shares.step_tokens + shares.samples);
    gradients += spec.sparse ? bytes / spec.shape[0] * rows : bytes;
  }
  // The full and the two-stage softmax work in blocks of bounded memory (core/ops/output_layer.h).
  constexpr int64_t kBlock = (int64_t{32} << 20) / 4;
  const int64_t words = shares.samples > 0 ? shares.samples + 1 : shares.vocab, all_logits = shares.forward_tokens * words;
  const int64_t logits = shares.blocks ? std::min(all_logits, kBlock) : all_logits;
  const int64_t width = network.model->feature_size();
  const int64_t training =
      shares.forward_tokens * (network.model->activation_bytes_per_token() + 8 * width) + 8 * logits;
  // A validation takes every word's logit, whatever training samples.
  const int64_t eval_tokens = r.train.eval_batch * (shares.step_tokens / r.batch.global);
  const int64_t activations =
      std::max(training, 4 * (eval_tokens * width + std::min(eval_tokens * shares.vocab, kBlock)));
  if (r.train.ema > 0) state += parameters;
  std::string text;
  for (const auto& [name, bytes] : {std::pair{"parameters", parameters}, std::pair{"gradients", gradients},
                                    std::pair{"optimizer", state}, std::pair{"activations", activations}})
    text += str("  ", name, " ", bytes_text(bytes), "\n");
  return text + str("  total ", bytes_text(parameters + gradients + state + activations), "\n");
}

std::string data_lines(const Recipe& r, const Shares& shares) {
  DataCheck check = check_dataset(r.data);
  if (check.train_tokens && *check.train_tokens <= shares.step_tokens)  // the last input needs a target after it
    check.findings.push_back(str("[batch] the train split is shorter than one batch: ", r.batch.global,
                                 " sequences (batch.global) of ", shares.step_tokens / r.batch.global, " take ",
                                 shares.step_tokens + 1, " tokens, it holds ", *check.train_tokens));
  if (check.findings.empty()) return "data: available\n";
  std::string text = "data: not ready\n";
  for (const std::string& finding : check.findings) text += "  " + finding + "\n";
  return text;
}

}  // namespace

std::string dry_run(const Node& composed, const std::string& name) {
  const Recipe r = read_recipe(composed, name);
  const int64_t vocab = vocabulary_size(r.data);
  const Network network = make_network(r, vocab, nullptr);
  const auto ranks = static_cast<int>(std::max<int64_t>(1, comm_ranks(r.comm, "comm")));
  static_cast<void>(SyncRules(r.sync, "sync", network.specs, 0, ranks, RandomKey()));
  const Shares shares = shares_of(r);
  int64_t total = 0;
  const std::string parameters = parameter_lines(network, total);
  std::string text = str("recipe ", name, "\n", "parameters ", count_text(total), "\n", parameters);
  text += str("batch ", r.batch.global, " sequences = ", count_text(shares.step_tokens), " tokens, vocabulary ",
              count_text(vocab), "\n");
  const int64_t macs = network.model->macs_per_token() + network.loss->macs_per_token(shares.forward_tokens);
  char flops[32];
  std::snprintf(flops, sizeof flops, "%.3g", 6.0 * static_cast<double>(macs * shares.step_tokens) / 1e9);
  text += str("arithmetic ", flops, " GFLOP a step, forward and backward, in matrix products\n");
  text += str("memory (estimate)\n", memory_lines(r, network, shares));
  return text + data_lines(r, shares);
}

}  // namespace lmx
