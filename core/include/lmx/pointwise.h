// Pointwise kernels whose arithmetic is written once for the CPU and for CUDA, such as one step of a recurrent cell.
//
// The struct of arguments is a functor on a matrix of `batch` rows and `cells` columns (rhn_kernels.h is an example):
//
//   static constexpr int64_t kGrain;  // elements of a thread of the CPU, at least
//   int64_t batch, cells;
//   // Computes elements j to j + Lanes::kCount - 1 of a row. `lanes.load(p)` is an array of the elements that begin at
//   // p, and `lanes.store(p, values)` writes one. All loads come before the first store.
//   template <class Lanes>
//   LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const;
//
// A step that keeps values for backward in another type (kept_type() in lmx/operand.h) has it as second parameter:
// `load` and `store` convert on a GPU, and on a CPU both types are the same.
//
// The addresses of element (row, j) are those of element (0, 0) and multiples of `cells` for each row and array.
// `lanes.store(operand, i, values)` also writes elements i and following of an operand where kernels write operands
// (lmx/operand.h).
//
// X_cpu.cc adds the kernels with `const KernelAdder adder = cpu::pointwise<Step, ...>();`, X_cuda.cu with
// cuda::pointwise of lmx/pointwise.cuh.
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"
#include "lmx/parallel.h"

namespace lmx::cpu {

// One element: the compiler vectorises the loop over them.
struct Lane {
  static constexpr int kCount = 1;
  template <class T>
  Some<T, 1> load(const T* p) const {
    return {{*p}};
  }
  template <class T>
  void store(T* p, const Some<T, 1>& some) const {
    *p = some.v[0];
  }
  template <class T>
  void store(const OperandTarget&, int64_t, const Some<T, 1>&) const {}
};

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
  Lane lane;
  LMX_INDEPENDENT
  for (int64_t j = 0; j < step.cells; ++j) step.apply(lane, row, j);
}

#undef LMX_POINTWISE
#undef LMX_INDEPENDENT

template <class Step>
void pointwise_rows(Context&, const Step& step) {
  parallel_for(step.batch, 1 + Step::kGrain / step.cells, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) pointwise_row(step, row);
  });
}

// Each Step has the element type as its only parameter, or also the kept type.
template <template <class> class... Steps>
KernelAdder pointwise() {
  return KernelAdder(Device::Kind::cpu, pointwise_rows<Steps<float>>..., pointwise_rows<Steps<double>>...);
}
template <template <class, class> class... Steps>
KernelAdder pointwise() {
  return KernelAdder(Device::Kind::cpu, pointwise_rows<Steps<float, float>>...,
                     pointwise_rows<Steps<double, double>>...);
}

}  // namespace lmx::cpu
