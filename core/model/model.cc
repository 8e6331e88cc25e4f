#include "lmx/model.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/recomputing_model.h"

namespace lmx {

// The key function of the class: its type information is emitted here, once.
Model::~Model() = default;

Decoding::~Decoding() = default;

bool Model::translates() const {
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

RecomputingModel::~RecomputingModel() = default;

int64_t Model::macs_per_pair(int64_t, int64_t target) const {
  return macs_per_token() * target;
}

// parameters() does not show how many tokens multiply a matrix (a decoder's, one of several experts), so each gets the
// mean number.
std::vector<Product> Model::products(const ForwardShape& shape) const {
  const int64_t steps = std::max<int64_t>(shape.steps, 1), tokens = shape.sequences * steps;
  const int64_t macs = translates() ? shape.sequences * macs_per_pair(steps, steps) : tokens * macs_per_token();
  std::vector<Product> products;
  int64_t elements = 0;
  for (const ParameterSpec& spec : parameters()) {
    if (spec.shape.rank() != 2 || spec.sparse) continue;
    elements += spec.shape.numel();
    products.push_back({0, spec.shape[0], spec.shape[1], 1, spec.name});
  }
  if (elements == 0) {
    const int64_t width = std::max<int64_t>(feature_size(), 1), rows = std::max<int64_t>(tokens, 1);
    return {{rows, width, std::max<int64_t>(macs / (rows * width), 1)}};
  }
  const double rows = static_cast<double>(macs) / static_cast<double>(elements);
  for (Product& p : products) p.m = std::max<int64_t>(1, std::llround(rows));
  return products;
}

}  // namespace lmx
