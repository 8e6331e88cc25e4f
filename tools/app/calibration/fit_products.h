// The curve of a device's products, for sizes that were not measured.
#pragma once

#include <vector>

#include "app/plan/machine.h"
#include "lmx/dtype.h"

namespace lmx::plan {

// Sets peak, efficiency and half_size, and product_us of a GPU, so that DeviceConfig::product_s() follows the measured
// products. The largest rate is the peak; half_size is the median of what the rates imply. A product of few rows takes
// a GPU longer than its operands take to arrive, since it cannot fill all processors: product_us is the median of this
// difference over the products whose operands take longer than their arithmetic, and is left out of the rates.
// REQUIRES: device.kind, device.memory_gb_s; at least one product.
void fit_products(DeviceConfig& device, const std::vector<MeasuredProduct>& products, DType compute);

}  // namespace lmx::plan
