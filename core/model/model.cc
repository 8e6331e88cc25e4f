#include "lmx/model.h"

#include "lmx/error.h"

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

int64_t Model::activation_bytes(int64_t sequences, int64_t steps, DType compute) const {
  return sequences * steps * activation_bytes_per_token(compute);
}

int64_t Model::copy_bytes(DType) const {
  return 0;
}

std::vector<std::string> Model::warnings(const ForwardShape&) const {
  return {};
}

int64_t Model::macs_per_pair(int64_t, int64_t target) const {
  return macs_per_token() * target;
}

}  // namespace lmx
