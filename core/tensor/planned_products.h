// Estimates of the memory of products on another processor than this one.
#pragma once

#include "lmx/tensor.h"

namespace lmx {

// How a processor multiplies. A GPU multiplies operands of each type without a conversion, and reads weights where they
// are. A CPU packs the weights of recurrences and of large products, and widens f16 to f32 before it multiplies, and
// bf16 unless it has fast instructions for it.
struct ProductSupport {
  bool gpu = false;
  bool bf16 = false;  // a CPU that multiplies bf16 faster than f32
};

// While it exists, estimates that the calling thread makes are for a processor with that support: those by
// multiplies_in_f32(), operand_type() and planned_device(). REQUIRES: meanwhile the thread computes only on devices that
// count.
class PlannedProducts {
 public:
  explicit PlannedProducts(const ProductSupport& support);
  ~PlannedProducts();
  PlannedProducts(const PlannedProducts&) = delete;
  PlannedProducts& operator=(const PlannedProducts&) = delete;

 private:
  const ProductSupport* before_;
  ProductSupport support_;
};
// The processor of the estimates of the calling thread; null: this CPU.
const ProductSupport* planned_products();

// The kind of that processor. Only on a CPU, products with many uses of a weight read a packed copy of it.
Device::Kind planned_device();

}  // namespace lmx
