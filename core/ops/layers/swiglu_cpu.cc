#include "ops/layers/swiglu.h"

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void forward_row(const T* gates, const T* values, T* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = swiglu_value(gates[i], values[i]);
}

template <class T>
LMX_SIMD void backward_row(const T* gates, const T* values, const T* dy, T* __restrict dgates, T* __restrict dvalues,
                           int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const SwigluSlopes<T> d = swiglu_slopes(gates[i], values[i], dy[i]);
    dgates[i] = d.gate;
    dvalues[i] = d.value;
  }
}

template <class T>
void forward(Context&, const Swiglu<T>& a) {
  parallel_for(a.rows, row_grain(4 * a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* gates = a.x + 2 * r * a.cols;
      forward_row<T>(gates, gates + a.cols, a.y + r * a.cols, a.cols);
    }
  });
}

template <class T>
void backward(Context&, const SwigluBackward<T>& a) {
  parallel_for(a.rows, row_grain(4 * a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t gates = 2 * r * a.cols, values = gates + a.cols;
      backward_row<T>(a.x + gates, a.x + values, a.dy + r * a.cols, a.dx + gates, a.dx + values, a.cols);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
