#include "lmx/model.h"

#include "lmx/error.h"

namespace lmx {

// The key function of the class: its type information is emitted here, once.
Model::~Model() = default;

Decoding::~Decoding() = default;

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

}  // namespace lmx
