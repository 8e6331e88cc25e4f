// Models: immutable structure over a ParameterStore, from a batch to features that a loss turns into likelihoods.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/parameters.h"

namespace lmx {

// Recurrent state of some sequences, by name ("lstm.0.h"): each (B, ...), row i belongs to the i-th sequence of a
// batch.
using ModelState = std::map<std::string, Tensor>;

struct ModelEnv {
  int64_t vocab_size = 0;
};

class LMX_API Model {
 public:
  virtual ~Model();
  virtual std::vector<ParameterSpec> parameters() const = 0;
  // Features (B*T, D) of every position, sequence by sequence; `state` comes in as it stood before the batch (rows of
  // fresh sequences are zero) and leaves as it stands after it, detached from the tape.
  virtual Var forward(Context& ctx, ParameterStore& params, const Batch& batch, ModelState& state) const = 0;
  virtual ModelState initial_state(Context& ctx, int64_t sequences) const = 0;
  virtual int64_t feature_size() const = 0;
  // Multiply-adds of matrix products in a forward pass of one token, and activation bytes kept per token for backward.
  virtual int64_t macs_per_token() const = 0;
  virtual int64_t activation_bytes_per_token() const = 0;
};

using ModelFactory = std::unique_ptr<Model> (*)(const Node& config, const std::string& path, const ModelEnv& env);

}  // namespace lmx
