#include "ops/array/shapes.h"

#include <cstring>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
void copy(Context&, const CopyRuns<T>& a) {
  const size_t bytes = static_cast<size_t>(a.width) * sizeof(T);
  parallel_for(a.runs, row_grain(a.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::memcpy(a.to + r * a.to_stride, a.from + r * a.from_stride, bytes);
  });
}

const KernelAdder adder(Device::Kind::cpu, copy<float>, copy<double>);

}  // namespace
}  // namespace lmx::ops
