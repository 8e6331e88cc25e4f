// Models: immutable structure over a ParameterStore. A model computes features of a batch, which a loss turns into
// likelihoods.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/parameters.h"

namespace lmx {

// Recurrent state of some sequences, by name ("lstm.0.h"). Each tensor is (B, ...); row i belongs to the i-th sequence
// of a batch.
using ModelState = std::map<std::string, Tensor>;

// What a rank computes in one forward.
struct ForwardShape {
  int64_t sequences = 0, steps = 0;  // steps: tokens of a sequence; 0: the sequences are sub-batches of sentences
};

struct ModelEnv {
  int64_t vocab_size = 0;
};

// Generates sentences token by token. Each row is a sentence in progress. Its earlier positions are cached, so that a
// step computes one position only.
class LMX_API Decoding {
 public:
  virtual ~Decoding();
  // Features f32 (rows, D) that predict the token after `ids` (rows), the latest tokens of the rows (</s> at the
  // start).
  virtual Tensor step(Context& ctx, std::span<const int32_t> ids) = 0;
  // Reorders the rows: from now on row i continues the text of the former row from[i]. Rows may be duplicated and
  // dropped. Rows of one sentence stay adjacent, and sentences keep their order.
  virtual void select(Context& ctx, std::span<const int64_t> from) = 0;
};

class LMX_API Model {
 public:
  virtual ~Model();
  virtual std::vector<ParameterSpec> parameters() const = 0;
  // True: an encoder-decoder, which needs batch.source.
  virtual bool translates() const;
  // The parameter that is also the output layer's weight; "": none. If `tie` of the loss names another, that is an
  // error.
  virtual std::string output_table() const;
  // Starts translating `source` i32 (M), sentences of `lengths` (B), with one row for each sentence. Records no
  // gradients and applies no dropout. `params` must outlive the result. Default: UserError, the model does not
  // translate.
  virtual std::unique_ptr<Decoding> decode(Context& ctx, const ParameterStore& params, const Tensor& source,
                                           const std::vector<int64_t>& lengths) const;
  // Features (B*T, D), or (N, D), of every position, sequence by sequence. `state` is the state before the batch (rows
  // of fresh sequences are zero); it is replaced by the state after the batch, detached from the tape.
  virtual Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const = 0;
  virtual ModelState initial_state(Context& ctx, int64_t sequences) const = 0;
  virtual int64_t feature_size() const = 0;
  // Multiply-adds of the matrix products in a forward pass, for one token.
  virtual int64_t macs_per_token() const = 0;
  // Activation bytes kept for backward, for each token, if products are computed in `compute`.
  virtual int64_t activation_bytes_per_token(DType compute) const = 0;
  // Peak of the activation bytes of a step of this size. Default: activation_bytes_per_token() for each token.
  virtual int64_t activation_bytes(int64_t sequences, int64_t steps, DType compute) const;
  // Bytes of copies of the weights that are kept for products in `compute`. Default: 0.
  virtual int64_t copy_bytes(DType compute) const;
  // Warnings to print about settings that have no effect on a forward pass of this shape. Default: none.
  virtual std::vector<std::string> warnings(const ForwardShape& shape) const;
  // Multiply-adds of a forward pass of a pair of these lengths. Default: macs_per_token() for each target.
  virtual int64_t macs_per_pair(int64_t source, int64_t target) const;
};

using ModelFactory = std::unique_ptr<Model> (*)(const Node& config, const std::string& path, const ModelEnv& env);

}  // namespace lmx
