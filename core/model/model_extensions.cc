#include "lmx/model.h"

namespace lmx {

TextModel::~TextModel() = default;
LossTermModel::~LossTermModel() = default;

std::unique_ptr<Decoding> start_text(const Model& model, Context& ctx, const ParameterStore& params, int64_t rows) {
  const auto* offers = dynamic_cast<const TextModel*>(&model);
  return offers ? offers->start_text(ctx, params, rows) : nullptr;
}

std::vector<std::string> loss_terms(const Model& model) {
  const auto* offers = dynamic_cast<const LossTermModel*>(&model);
  return offers ? offers->loss_terms() : std::vector<std::string>();
}

Var forward_training(const Model& model, Context& ctx, const ParameterStore& params, const Batch& batch,
                     ModelState& state, LossTerms& terms) {
  const auto* offers = dynamic_cast<const LossTermModel*>(&model);
  return offers ? offers->forward_training(ctx, params, batch, state, terms) : model.forward(ctx, params, batch, state);
}

}  // namespace lmx
