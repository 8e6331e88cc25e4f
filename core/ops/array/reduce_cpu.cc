#include "ops/array/reduce.h"

#include <cmath>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
void largest(Context&, const Max<T>& a) {
  parallel_for(a.columns, row_grain(a.size), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const T* column = a.x + c / a.inner * a.size * a.inner + c % a.inner;
      T best = column[0];
      int32_t place = 0;
      for (int64_t i = 1; i < a.size && !std::isnan(best); ++i) {
        const T value = column[i * a.inner];
        if (value > best || std::isnan(value)) {
          best = value;
          place = static_cast<int32_t>(i);
        }
      }
      a.y[c] = best;
      a.places[c] = place;
    }
  });
}

template <class T>
void backward(Context&, const MaxBackward<T>& a) {
  for (int64_t c = 0; c < a.columns; ++c) a.dx[(c / a.inner * a.size + a.places[c]) * a.inner + c % a.inner] = a.dy[c];
}

const KernelAdder adder(Device::Kind::cpu, largest<float>, largest<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
