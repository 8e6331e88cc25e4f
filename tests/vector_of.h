// The values of a tensor of the CPU, copied.
#pragma once

#include <vector>

#include "lmx/tensor.h"

namespace lmx_test {

template <class T>
std::vector<T> vector_of(const lmx::Tensor& t) {
  const auto values = t.values<T>();
  return {values.begin(), values.end()};
}

}  // namespace lmx_test
