// Pointwise kernels whose arithmetic is written once for the CPU and for CUDA, such as one step of a recurrent cell.
//
// The struct of arguments is a functor on a matrix of `batch` rows and `cells` columns (rhn_kernels.h is an example):
//
//   static constexpr int64_t kGrain;                    // elements of a thread of the CPU, at least
//   int64_t batch, cells;
//   LMX_HD void operator()(int64_t row, int64_t j) const;  // reads and writes what belongs to element (row, j) only
//   OperandTarget operand = {};                            // optional, with write_operand(): see lmx/operand.h
//   LMX_HD void write_operand(int64_t row, int64_t j) const;  // called after operator() where kernels write operands
//
// X_cpu.cc adds the kernels with `const KernelAdder adder = cpu::pointwise<Step, ...>();`, X_cuda.cu with
// cuda::pointwise of lmx/cuda_launch.cuh.
#pragma once

#include "lmx/kernels.h"
#include "lmx/parallel.h"

namespace lmx::cpu {

#if defined(__clang__)  // has no clones of function templates
#define LMX_POINTWISE
#define LMX_INDEPENDENT
#else
#define LMX_POINTWISE [[gnu::flatten]] LMX_SIMD
#define LMX_INDEPENDENT _Pragma("GCC ivdep")
#endif

// The functor is a copy of the loop's own, which no store can change. `omp simd` would give each vector lane a separate
// copy of the structs in the functor, and the compiler would then not vectorise the loop.
template <class Step>
LMX_POINTWISE void pointwise_row(const Step& arguments, int64_t row) {
  const Step step = arguments;
  LMX_INDEPENDENT
  for (int64_t j = 0; j < step.cells; ++j) step(row, j);
}

#undef LMX_POINTWISE
#undef LMX_INDEPENDENT

template <class Step>
void pointwise_rows(Context&, const Step& step) {
  parallel_for(step.batch, 1 + Step::kGrain / step.cells, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) pointwise_row(step, row);
  });
}

// Each Step has the element type as its only parameter.
template <template <class> class... Steps>
KernelAdder pointwise() {
  return KernelAdder(Device::Kind::cpu, pointwise_rows<Steps<float>>..., pointwise_rows<Steps<double>>...);
}

}  // namespace lmx::cpu
