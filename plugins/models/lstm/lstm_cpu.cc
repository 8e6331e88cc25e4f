#include "lmx/kernels.h"
#include "lmx/parallel.h"
#include "lstm_cell.h"
#include "lstm_kernels.h"

namespace lmx::lstm {
namespace {

// One row: pointers to its blocks. No `omp simd` here: it would give every vector lane a struct of its own, and the
// compiler would then keep the loop scalar.
template <class T>
LMX_SIMD void forward_row(T* __restrict z, const T* __restrict b, const T* __restrict c, T* __restrict c_next,
                          T* __restrict m, int64_t h, T forget_bias) {
  for (int64_t j = 0; j < h; ++j) {
    const Gates<T> pre{z[j] + b[j], z[h + j] + b[h + j] + forget_bias, z[2 * h + j] + b[2 * h + j],
                       z[3 * h + j] + b[3 * h + j]};
    const CellOut<T> out = cell_forward(pre, c[j]);
    z[j] = out.gates.i;
    z[h + j] = out.gates.f;
    z[2 * h + j] = out.gates.g;
    z[3 * h + j] = out.gates.o;
    c_next[j] = out.c;
    m[j] = out.m;
  }
}

template <class T>
LMX_SIMD void backward_row(T* __restrict z, const T* __restrict c, const T* __restrict c_next, const T* __restrict dm,
                           T* __restrict dc, int64_t h) {
  for (int64_t j = 0; j < h; ++j) {
    const CellGrad<T> g = cell_backward<T>({z[j], z[h + j], z[2 * h + j], z[3 * h + j]}, c[j], c_next[j], dm[j], dc[j]);
    z[j] = g.z.i;
    z[h + j] = g.z.f;
    z[2 * h + j] = g.z.g;
    z[3 * h + j] = g.z.o;
    dc[j] = g.c;
  }
}

template <class T>
void forward(const ForwardStep<T>& s) {
  const int64_t h = s.cells;
  parallel_for(s.batch, 1 + 4096 / h, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      forward_row(s.z + r * 4 * h, s.bias, s.c + r * h, s.c_next + r * h, s.m + r * h, h, s.forget_bias);
    }
  });
}

template <class T>
void backward(const BackwardStep<T>& s) {
  const int64_t h = s.cells;
  parallel_for(s.batch, 1 + 4096 / h, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      backward_row(s.z + r * 4 * h, s.c + r * h, s.c_next + r * h, s.dm + r * h, s.dc + r * h, h);
    }
  });
}

template <class T>
void add(DType type) {
  const ForwardKernel<T> f = forward<T>;
  const BackwardKernel<T> b = backward<T>;
  add_kernel("lstm_forward", Device::Kind::cpu, type, reinterpret_cast<AnyKernel>(f));
  add_kernel("lstm_backward", Device::Kind::cpu, type, reinterpret_cast<AnyKernel>(b));
}

}  // namespace

void add_cpu_kernels() {
  add<float>(DType::f32);
  add<double>(DType::f64);
}

}  // namespace lmx::lstm
