#include "lmx/kernels.h"
#include "lmx/parallel.h"
#include "lstm_cell.h"
#include "lstm_kernels.h"

namespace lmx::lstm {
namespace {

// One row: pointers of this row's blocks. Separate names let the compiler vectorise without asking about overlap.
LMX_SIMD void forward_row(float* __restrict z, const float* __restrict b, const float* __restrict c,
                          float* __restrict c_next, float* __restrict m, int64_t h, float forget_bias) {
#pragma omp simd
  for (int64_t j = 0; j < h; ++j) {
    const Gates<float> pre{z[j] + b[j], z[h + j] + b[h + j] + forget_bias, z[2 * h + j] + b[2 * h + j],
                           z[3 * h + j] + b[3 * h + j]};
    const CellOut<float> out = cell_forward(pre, c[j]);
    z[j] = out.gates.i;
    z[h + j] = out.gates.f;
    z[2 * h + j] = out.gates.g;
    z[3 * h + j] = out.gates.o;
    c_next[j] = out.c;
    m[j] = out.m;
  }
}
void forward_row(double* z, const double* b, const double* c, double* c_next, double* m, int64_t h, double forget_bias) {
  for (int64_t j = 0; j < h; ++j) {
    const Gates<double> pre{z[j] + b[j], z[h + j] + b[h + j] + forget_bias, z[2 * h + j] + b[2 * h + j],
                            z[3 * h + j] + b[3 * h + j]};
    const CellOut<double> out = cell_forward(pre, c[j]);
    z[j] = out.gates.i;
    z[h + j] = out.gates.f;
    z[2 * h + j] = out.gates.g;
    z[3 * h + j] = out.gates.o;
    c_next[j] = out.c;
    m[j] = out.m;
  }
}

LMX_SIMD void backward_row(float* __restrict z, const float* __restrict c, const float* __restrict c_next,
                           const float* __restrict dm, float* __restrict dc, int64_t h) {
#pragma omp simd
  for (int64_t j = 0; j < h; ++j) {
    const CellGrad<float> g =
        cell_backward<float>({z[j], z[h + j], z[2 * h + j], z[3 * h + j]}, c[j], c_next[j], dm[j], dc[j]);
    z[j] = g.z.i;
    z[h + j] = g.z.f;
    z[2 * h + j] = g.z.g;
    z[3 * h + j] = g.z.o;
    dc[j] = g.c;
  }
}
void backward_row(double* z, const double* c, const double* c_next, const double* dm, double* dc, int64_t h) {
  for (int64_t j = 0; j < h; ++j) {
    const CellGrad<double> g =
        cell_backward<double>({z[j], z[h + j], z[2 * h + j], z[3 * h + j]}, c[j], c_next[j], dm[j], dc[j]);
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
