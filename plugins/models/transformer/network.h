// The Transformer's layers (Vaswani et al. 2017) over packed rows: the sentences of a batch are stored one after the
// other, so that nothing is computed for padding.
#pragma once

#include <string>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/ops.h"
#include "lmx/parameters.h"

namespace lmx::transformer {

struct TransformerConfig {
  int64_t encoder_layers = 6, decoder_layers = 6;
  int64_t d = 512, ffn = 2048, heads = 8;
  double dropout = 0.1, attention_dropout = 0, relu_dropout = 0;
  std::string norm = "post", share = "all";

  void fields(Fields& f);
  void check(const std::string& where) const;
  Traits traits() const;
  bool translates() const { return encoder_layers > 0; }
  bool pre() const { return norm == "pre"; }
  std::string source_table() const;
  std::string target_table() const;
};

// Specs of all weights, biases and norms, with the names under which the network looks them up.
std::vector<ParameterSpec> parameters_of(const TransformerConfig& config, int64_t vocab);

// The rows of one side of a batch.
struct Rows {
  Segments segments;
  std::vector<uint64_t> ids;  // row_ids(); empty if there is no dropout
};
// Writes the sinusoids of position t to `to` (d): sin(t f_i) for i < d/2, then cos(t f_i), f_i = 10000^(-i / (d/2 -
// 1)), as in fairseq.
void position_row(int64_t t, int64_t d, double* to);

// One pass over the layers. The constructor's arguments must outlive it.
class Network {
 public:
  // `pack`: no gradients are recorded, and the same weights are used in many passes with few rows; on the CPU, packed
  // weights are cached.
  Network(Context& ctx, const ParameterStore& params, const TransformerConfig& config, bool pack = false)
      : ctx_(ctx), params_(params), config_(config), key_(ctx.key.fold("dropout")), pack_(pack) {}

  // Words and positions: table[ids] sqrt(d) + position. positions (N): each row's position in its sequence.
  Var embed(const std::string& table, const Tensor& ids, const std::vector<int64_t>& positions) const;
  // The same for whole sequences, with dropout. `side`: "encoder" or "decoder".
  Var embed(const std::string& side, const std::string& table, const Tensor& ids, const Rows& rows) const;
  Var encoder(const Tensor& source, const Rows& rows) const;
  // `memory`: the encoder's output; undefined for a language model.
  Var decoder(const Tensor& inputs, const Rows& rows, const Var& memory, const Rows& source) const;

  // Applies the sub-layer `f`, whose result is a branch, to x: norm(x + dropout(f(x))), or with pre-norm x +
  // dropout(f(norm(x))).
  template <class F>
  Var sublayer(const std::string& name, const Var& x, const Rows& rows, F&& f) const {
    if (config_.pre()) return add(ctx_, x, noisy(name, config_.dropout, f(norm(name + ".norm", x)).product, rows));
    return residual_norm(ctx_, {x, f(x), params_.at(name + ".norm.gain"), params_.at(name + ".norm.bias")},
                         config_.dropout, key_.fold(name), rows.ids);
  }
  Var linear(const std::string& name, const Var& x) const;  // "NAME.weight", "NAME.bias"
  Projection projection(const std::string& name, const Var& x) const;
  Var norm(const std::string& name, const Var& x) const;  // "NAME.gain", "NAME.bias"
  // The same layers as the last ones of a sub-layer. With pre-norm their bias is already added.
  Branch branch(const std::string& name, const Var& x) const;
  Branch feed_forward(const std::string& name, const Var& x, const Rows& rows) const;
  // With pre-norm the sum of a stack is not normalised yet; this applies the final norm.
  Var finish(const std::string& side, const Var& x) const;

 private:
  // Options of the attention `name`, whose queries are `rows`.
  AttentionOptions options(const std::string& name, const Rows& rows, bool causal) const;
  // Then values between products are rounded nowhere, so a result does not depend on which products use packed weights.
  bool decodes_on_cpu() const;
  Var noisy(const std::string& name, double p, const Var& x, const Rows& rows) const;

  Context& ctx_;
  const ParameterStore& params_;
  const TransformerConfig& config_;
  RandomKey key_;
  bool pack_;
};

}  // namespace lmx::transformer
