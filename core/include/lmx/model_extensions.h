// Optional interfaces of models. A model derives from Model and from each of these that it offers:
//
//   class MyDecoder : public lmx::Model, public lmx::TextModel, public lmx::LossTermModel { ... };
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/loss_terms.h"
#include "lmx/model.h"

namespace lmx {

// A language model that keeps what it has read (keys and values, say), so that a further token costs one position. A
// model without it is fed by forward(): with the state that it carries or, if it has none, with the whole text at each
// token.
class LMX_API TextModel {
 public:
  virtual ~TextModel();
  // Starts `rows` texts, all of them empty; Decoding::step() reads each row's next token. Nothing is recorded, nothing
  // dropped. `params` and the model must outlive it. Null: the model is configured as one that writes no text.
  virtual std::unique_ptr<Decoding> start_text(Context& ctx, const ParameterStore& params, int64_t rows) const = 0;
};

// A model that adds named terms to the training loss.
class LMX_API LossTermModel {
 public:
  virtual ~LossTermModel();
  virtual std::vector<std::string> loss_terms() const = 0;  // names: a-z, 0-9, _
  // The forward pass of training: the features of Model::forward(), and the terms added to `terms`. Validation and
  // generation call forward() alone, so that no term counts in a likelihood.
  virtual Var forward_training(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state,
                               LossTerms& terms) const = 0;
};

// The same of any model: null, no names, and forward() for one that does not offer it.
LMX_API std::unique_ptr<Decoding> start_text(const Model& model, Context& ctx, const ParameterStore& params,
                                             int64_t rows);
LMX_API std::vector<std::string> loss_terms(const Model& model);
LMX_API Var forward_training(const Model& model, Context& ctx, const ParameterStore& params, const Batch& batch,
                             ModelState& state, LossTerms& terms);

}  // namespace lmx
