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

Device::Kind planned_device() {
  return planned && planned->gpu ? Device::Kind::cuda : Device::Kind::cpu;
}

}  // namespace lmx
