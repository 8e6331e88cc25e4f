#include "lmx/parallel.h"
#include "rhn_cell.h"
#include "rhn_kernels.h"

namespace lmx::rhn {
namespace {

template <bool Coupled, class T>
LMX_SIMD void forward_row(T* __restrict z, const T* __restrict bias, const T* __restrict s, T* __restrict next,
                          int64_t h, T transform_bias) {
  for (int64_t j = 0; j < h; ++j) forward_element<Coupled>(z, bias, s[j], next, j, h, transform_bias);
}

template <bool Coupled, class T>
LMX_SIMD void backward_row(T* __restrict z, const T* __restrict s, T* __restrict ds, int64_t h) {
  for (int64_t j = 0; j < h; ++j) backward_element<Coupled>(z, s[j], ds, j, h);
}

template <bool Coupled, class T>
void forward_rows(const ForwardStep<T>& p) {
  const int64_t h = p.cells, width = (Coupled ? 2 : 3) * h;
  parallel_for(p.batch, 1 + 4096 / h, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      forward_row<Coupled>(p.z + r * width, p.bias, p.s + r * h, p.next + r * h, h, p.transform_bias);
  });
}

template <bool Coupled, class T>
void backward_rows(const BackwardStep<T>& p) {
  const int64_t h = p.cells, width = (Coupled ? 2 : 3) * h;
  parallel_for(p.batch, 1 + 4096 / h, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) backward_row<Coupled>(p.z + r * width, p.s + r * h, p.ds + r * h, h);
  });
}

template <class T>
void forward(Context&, const ForwardStep<T>& p) {
  p.coupled ? forward_rows<true>(p) : forward_rows<false>(p);
}

template <class T>
void backward(Context&, const BackwardStep<T>& p) {
  p.coupled ? backward_rows<true>(p) : backward_rows<false>(p);
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::rhn
