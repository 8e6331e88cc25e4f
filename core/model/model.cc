#include "lmx/model.h"
#include "lmx/error.h"

namespace lmx {

// The key function of the class: its type information is emitted here, once.
Model::~Model() = default;

Decoding::~Decoding() = default;

Tensor Decoding::read(Context& ctx, std::span<const int32_t> ids, int64_t rows) {
  const size_t n = ids.size() / static_cast<size_t>(rows);
  Tensor features;
  std::vector<int32_t> next(static_cast<size_t>(rows));
  for (size_t t = 0; t < n; ++t) {
    for (size_t r = 0; r < next.size(); ++r) next[r] = ids[r * n + t];
    features = step(ctx, next);
  }
  return features;
}

bool Model::translates() const {
  return false;
}

bool Model::separates_documents() const {
  return false;
}

std::string Model::output_table() const {
  return {};
}

std::unique_ptr<Decoding> Model::decode(Context&, const ParameterStore&, const Tensor&,
                                        const std::vector<int64_t>&) const {
  throw UserError("[model] this model does not translate: it has no encoder");
}

std::vector<std::string> Model::warnings(const ForwardShape&) const {
  return {};
}

int64_t Model::macs_per_pair(int64_t source, int64_t target) const {
  int64_t macs = 0;
  for (const ParameterSpec& spec : parameters())
    if (spec.shape.rank() == 2 && !spec.sparse) macs += spec.shape.numel();
  return macs * (source + target);
}

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
