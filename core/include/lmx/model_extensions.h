// Optional interfaces of models. A model derives from Model and from each interface that it supports:
//
//   class MyDecoder : public lmx::Model, public lmx::TextModel, public lmx::LossTermModel { ... };
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/loss_terms.h"
#include "lmx/model.h"

namespace lmx {

// A language model that caches the tokens that it has read (keys and values, for example), so that each further token
// costs one position. For a model without this interface, text is generated with forward(): from the state that the
// model carries or, if it has none, from the whole text at each token.
class LMX_API TextModel {
 public:
  virtual ~TextModel();
  // Starts `rows` empty texts; Decoding::step() reads each row's next token. Records no gradients and applies no
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
