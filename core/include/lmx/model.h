// Models: immutable structure over a ParameterStore. A model computes features of a batch, which a loss turns into
// likelihoods.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/loss.h"
#include "lmx/parameters.h"

namespace lmx {

// Recurrent state of some sequences, by name ("lstm.0.h"). Each tensor is f32 or f64 (B, ...); row i belongs to the
// i-th sequence of a batch.
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
  // Reads the first tokens of the rows, a prompt: `ids` (rows * n), the n >= 1 tokens of the first row, then those of
  // the second. REQUIRES: no step() before. Features of the last tokens, as step(). Default: n steps.
  virtual Tensor read(Context& ctx, std::span<const int32_t> ids, int64_t rows);
  // Features f32 (rows, D) that predict the token after `ids` (rows), the latest tokens of the rows (</s> at the
  // start).
  virtual Tensor step(Context& ctx, std::span<const int32_t> ids) = 0;
  // Reorders the rows: from now on row i continues the text of the former row from[i]. Rows may be duplicated and
  // dropped. Rows of one sentence stay adjacent, and sentences keep their order.
  virtual void select(Context& ctx, std::span<const int64_t> from) = 0;
};

class LMX_API Model {
 public:
  using Factory = std::unique_ptr<Model> (*)(const Node& config, const std::string& path, const ModelEnv& env);

  virtual ~Model();
  virtual std::vector<ParameterSpec> parameters() const = 0;
  // True: an encoder-decoder, which needs batch.source.
  virtual bool translates() const;
  // True: forward() reads Batch::documents. Default: false, and a batcher that separates documents is an error.
  virtual bool separates_documents() const;
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
  // Warnings to print about settings that have no effect on a forward pass of this shape. Default: none.
  virtual std::vector<std::string> warnings(const ForwardShape& shape) const;
  // The cost of a forward pass of a pair of these lengths, in multiply-adds, for batchers that balance the cost of
  // their batches. Default: the elements of the dense matrices of parameters(), for each token of both sides.
  virtual int64_t macs_per_pair(int64_t source, int64_t target) const;
};

using ModelFactory = Model::Factory;

// Optional interfaces of models. A model derives from Model and from each interface that it supports:
//
//   class MyDecoder : public lmx::Model, public lmx::TextModel, public lmx::LossTermModel { ... };

// A language model that caches the tokens that it has read (keys and values, for example), so that each further token
// costs one position. For a model without this interface, text is generated with forward(): from the state that the
// model carries or, if it has none, from the whole text at each token.
class LMX_API TextModel {
 public:
  virtual ~TextModel();
  // Starts `rows` empty texts, which Decoding::read() and step() continue. Records no gradients and applies no
  // dropout. `params` and the model must outlive the result. Null: this configuration of the model cannot generate
  // text.
  virtual std::unique_ptr<Decoding> start_text(Context& ctx, const ParameterStore& params, int64_t rows) const = 0;
};

// A model that adds named terms to the training loss.
class LMX_API LossTermModel {
 public:
  virtual ~LossTermModel();
  virtual std::vector<std::string> loss_terms() const = 0;  // names: a-z, 0-9, _
  // The forward pass of training: returns the features of Model::forward() and adds the terms to `terms`. Validation
  // and generation call forward() only, so terms are never part of a likelihood.
  virtual Var forward_training(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state,
                               LossTerms& terms) const = 0;
};

// The same functions for any model. If it does not support the interface: null, no names, and forward().
LMX_API std::unique_ptr<Decoding> start_text(const Model& model, Context& ctx, const ParameterStore& params,
                                             int64_t rows);
LMX_API std::vector<std::string> loss_terms(const Model& model);
LMX_API Var forward_training(const Model& model, Context& ctx, const ParameterStore& params, const Batch& batch,
                             ModelState& state, LossTerms& terms);

}  // namespace lmx
