#include "lmx/lstm_cell.h"

#include "lmx/parallel.h"

namespace lmx::lstm {
namespace {

// One row, given by pointers to its blocks. No `omp simd` here: it would give every vector lane a separate struct, and
// the compiler would then not vectorise the loop.
template <class T>
LMX_SIMD void forward_row(T* __restrict z, const T* __restrict b, const T* __restrict c, T* __restrict c_next,
                          T* __restrict m, int64_t h, T forget_bias) {
  for (int64_t j = 0; j < h; ++j) forward_element(z, b, c[j], c_next, m, j, h, forget_bias);
}

template <class T>
LMX_SIMD void backward_row(T* __restrict z, const T* __restrict c, const T* __restrict c_next, const T* __restrict dm,
                           T* __restrict dc, int64_t h) {
  for (int64_t j = 0; j < h; ++j) backward_element(z, c[j], c_next[j], dm[j], dc, j, h);
}

template <class T>
void forward(Context&, const LstmForwardStep<T>& s) {
  const int64_t h = s.cells;
  parallel_for(s.batch, 1 + 4096 / h, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      forward_row(s.z + r * 4 * h, s.bias, s.c + r * h, s.c_next + r * h, s.m + r * h, h, s.forget_bias);
    }
  });
}

template <class T>
void backward(Context&, const LstmBackwardStep<T>& s) {
  const int64_t h = s.cells;
  parallel_for(s.batch, 1 + 4096 / h, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      backward_row(s.z + r * 4 * h, s.c + r * h, s.c_next + r * h, s.dm + r * h, s.dc + r * h, h);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::lstm
