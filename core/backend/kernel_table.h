// Lists the kernels of the kernel table.
#pragma once

#include <set>
#include <string>

#include "lmx/tensor.h"

namespace lmx {

// The argument types of all kernels of a device, such as "lmx::ops::Dropout<float>".
std::set<std::string> kernel_names(Device::Kind device);

}  // namespace lmx
