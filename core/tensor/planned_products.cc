#include "tensor/planned_products.h"

namespace lmx {
namespace {

thread_local const ProductSupport* planned = nullptr;

}  // namespace

PlannedProducts::PlannedProducts(const ProductSupport& support) : before_(planned), support_(support) {
  planned = &support_;
}
PlannedProducts::~PlannedProducts() {
  planned = before_;
}

const ProductSupport* planned_products() {
  return planned;
}

bool packs_weights() {
  return !planned || !planned->gpu;
}

}  // namespace lmx
