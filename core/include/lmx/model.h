// Models: immutable structure over a ParameterStore, from a batch to features that a loss turns into likelihoods.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/parameters.h"

namespace lmx {

// Recurrent state of some sequences, by name ("lstm.0.h"): each (B, ...), row i belongs to the i-th sequence of a
// batch.
using ModelState = std::map<std::string, Tensor>;

// What a rank computes in one forward.
struct ForwardShape {
  int64_t sequences = 0, steps = 0;  // steps: tokens of a sequence; 0: the sequences are sub-batches of sentences
};

struct ModelEnv {
  int64_t vocab_size = 0;
};

// Sentences that are written token by token. A row is a sentence in progress; what it has written so far is kept, so
// that a step costs one position.
class LMX_API Decoding {
 public:
  virtual ~Decoding();
  // Features f32 (rows, D) that predict what follows `ids` (rows), the rows' latest tokens (</s> at the start).
  virtual Tensor step(Context& ctx, std::span<const int32_t> ids) = 0;
  // From here on row i goes on from what row from[i] had written; rows may double and vanish. Rows of one sentence stay
  // neighbours, and sentences in order.
  virtual void select(Context& ctx, std::span<const int64_t> from) = 0;
};

class LMX_API Model {
 public:
  virtual ~Model();
  virtual std::vector<ParameterSpec> parameters() const = 0;
  // True: an encoder-decoder, which needs batch.source.
  virtual bool translates() const;
  // The parameter that is the output layer's weight as well; "": none. A loss that names another by `tie` is an error.
  virtual std::string output_table() const;
  // Starts translating `source` i32 (M), sentences of `lengths` (B): one row a sentence. Nothing is recorded, nothing
  // dropped. `params` must outlive it. Default: UserError, the model does not translate.
  virtual std::unique_ptr<Decoding> decode(Context& ctx, const ParameterStore& params, const Tensor& source,
                                           const std::vector<int64_t>& lengths) const;
  // Features (B*T, D), or (N, D), of every position, sequence by sequence; `state` comes in as it stood before the
  // batch (rows of fresh sequences are zero) and leaves as it stands after it, detached from the tape.
  virtual Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const = 0;
  virtual ModelState initial_state(Context& ctx, int64_t sequences) const = 0;
  virtual int64_t feature_size() const = 0;
  // Multiply-adds of matrix products in a forward pass of one token.
  virtual int64_t macs_per_token() const = 0;
  // Activation bytes kept per token for backward, where products are in `compute`.
  virtual int64_t activation_bytes_per_token(DType compute) const = 0;
  // Activation bytes of a step of this size at their highest. Default: activation_bytes_per_token() for each token.
  virtual int64_t activation_bytes(int64_t sequences, int64_t steps, DType compute) const;
  // Bytes of the copies of weights that are kept beside them for products in `compute`. Default: 0.
  virtual int64_t copy_bytes(DType compute) const;
  // Lines for people about settings that have no effect on a forward of this shape. Default: none.
  virtual std::vector<std::string> warnings(const ForwardShape& shape) const;
  // Multiply-adds of a forward of a pair of these lengths. Default: macs_per_token() for each target.
  virtual int64_t macs_per_pair(int64_t source, int64_t target) const;
};

using ModelFactory = std::unique_ptr<Model> (*)(const Node& config, const std::string& path, const ModelEnv& env);

}  // namespace lmx
