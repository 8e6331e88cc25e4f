// A decoder-only language model over packed rows: the sequences of a batch are stored one after the other. Its fields
// make it GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023) or Qwen3.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/ops.h"
#include "lmx/parameters.h"

namespace lmx::gpt {

// Rotary positions of a model that is trained further on longer sequences (Llama 3.1). With L = `original`, a pair of
// elements that turns at least `high` times in L positions keeps its frequency; one that turns at most `low` times is
// slowed down by `factor`; the frequencies between are interpolated.
struct RopeScaling {
  double factor = 1, low = 1, high = 4;
  int64_t original = 8192;
  void fields(Fields& f);
};

struct GptConfig {
  int64_t layers = 6, d = 384, heads = 6, kv_heads = 0, head_size = 0, ffn = 0, context = 1024;
  std::string positions = "rope";
  double rope_base = 10000;
  RopeScaling rope_scaling;
  std::string norm = "rms";
  double norm_eps = 1e-6;
  std::string activation = "swiglu";
  bool bias = false, qkv_bias = false, qk_norm = false, tie = true, checkpoint = false;
  double dropout = 0;

  void fields(Fields& f);
  void check(const std::string& where) const;
  // Those of the architecture "gpt" are all fields by their names; kv_heads, head_size and ffn are never 0.
  Traits traits() const;

  int64_t keys() const { return kv_heads == 0 ? heads : kv_heads; }  // heads of keys and values
  int64_t size() const { return head_size == 0 ? d / heads : head_size; }
  int64_t units() const;  // of a feed-forward layer
  bool learned() const { return positions == "learned"; }
  bool gated() const { return activation == "swiglu"; }
};

std::vector<ParameterSpec> parameters_of(const GptConfig& config, int64_t vocab);

// The rows of a batch.
struct Rows {
  std::vector<int64_t> positions;  // of each row in its sequence
  std::vector<uint64_t> ids;       // identify rows for dropout; empty if nothing is dropped
  Rotations rotations;             // of the positions, if they are rotary
};

Rotations rotations_at(Context& ctx, const GptConfig& config, const std::vector<int64_t>& positions, DType type);

// One pass over the layers. The constructor's arguments must outlive it.
class Network {
 public:
  // `step`: the same weights are used in many passes of few rows, without gradients.
  Network(Context& ctx, const ParameterStore& params, const GptConfig& config, bool step = false)
      : ctx_(ctx), params_(params), config_(config), key_(ctx.key.fold("dropout")), step_(step) {}

  // Attention of a layer: qkv (N, (heads + 2 keys) size) -> (N, heads size). `key`: for dropout of its weights. With
  // `checkpoint` it is called again in the backward pass, so it must not refer to local variables.
  using Attend = std::function<Var(Context& ctx, int64_t layer, const Var& qkv, RandomKey key)>;
  // Features (N, d) of the words.
  Var features(const Tensor& words, const std::shared_ptr<const Rows>& rows, const Attend& attend) const;

 private:
  // The residual stream between two layers: x + dropout(branch), by the mask of the sub-layer `name`. The sum is
  // computed with the next norm.
  struct Stream {
    Var x;
    Branch branch = {};
    std::string name = {};
  };
  Var embed(const Tensor& words, const Rows& rows) const;
  Stream layer(int64_t l, const Stream& input, const Rows& rows, const Attend& attend) const;
  // The same, keeping only its input for the backward pass. The result is a whole sum.
  Var checkpointed_layer(int64_t l, const Var& input, const std::shared_ptr<const Rows>& rows,
                         const Attend& attend) const;
  // The sum and its norm; without a name there is no norm. `operand`: see residual_sum().
  NormedSum sum(const Stream& stream, const std::string& norm, const Rows& rows, bool operand) const;
  // Queries, keys and values of a layer from its normalised input, normalised and rotated if the model does so.
  Var operands(const std::string& name, const Var& x, const Rows& rows) const;
  Var norm_heads(const std::string& name, const Var& x, int64_t heads) const;
  Branch feed_forward(const std::string& name, const Var& x) const;
  Var linear(const std::string& name, const Var& x) const;
  // The same, for a result that sum() adds.
  Branch branch(const std::string& name, const Var& x) const;
  Var bias_of(const std::string& layer) const;
  // Then no product is rounded, so a result does not depend on which products use packed weights.
  bool decodes_on_cpu() const;
  bool drops() const;
  Context& ctx_;
  const ParameterStore& params_;
  const GptConfig& config_;
  RandomKey key_;
  bool step_;
};

}  // namespace lmx::gpt
