#include <algorithm>
#include <cmath>

#include "backend/cuda/parts.cuh"
#include "lmx/math.h"
#include "ops/losses/top_k.h"

namespace lmx::ops {
namespace {

using cuda::kWarpLanes;

struct SmallerValue {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};

template <class T>
__device__ bool is_left_out(const TopRows<T>& a, int64_t id) {
  for (int64_t i = 0; i < a.left_out; ++i)
    if (a.without[i] == id) return true;
  return false;
}

// Block r: row r. Each entry is found by a pass over the row: the best one behind the entry before it.
template <class T>
__global__ void top_rows_kernel(TopRows<T> a) {
  cuda::wait_for_previous();
  const T* const x = a.x + static_cast<int64_t>(blockIdx.x) * a.n;
  double* const found = a.found + static_cast<int64_t>(blockIdx.x) * a.width();
  T* const scratch = cuda::shared<T>();
  const T lowest = static_cast<T>(-INFINITY);
  T top = lowest;
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) top = cuda::LargerValue{}(top, x[i]);
  top = cuda::block_reduce(top, lowest, scratch, cuda::LargerValue{});
  const double sum =
      cuda::block_sum_of(0, a.n, [x, top](int64_t i) { return static_cast<double>(fast_exp(x[i] - top)); });
  if (threadIdx.x == 0) {
    found[0] = static_cast<double>(top) + std::log(sum);
    found[1] = static_cast<double>(x[a.wanted]);
  }
  T before = static_cast<T>(INFINITY);
  int64_t id_before = -1;
  for (int64_t e = 0; e < a.k; ++e) {
    T best = lowest;
    int64_t id = a.n;  // none
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
      const bool behind = x[i] < before || (x[i] == before && i > id_before);
      if (behind && x[i] > best && !is_left_out(a, i)) {
        best = x[i];
        id = i;
      }
    }
    before = cuda::block_reduce(best, lowest, scratch, cuda::LargerValue{});
    id_before = cuda::block_reduce(best == before ? id : a.n, a.n, cuda::shared<int64_t>(), SmallerValue{});
    if (threadIdx.x > 0) continue;
    found[2 + 2 * e] = static_cast<double>(before);
    found[3 + 2 * e] = id_before < a.n ? static_cast<double>(id_before) : -1;
  }
}

template <class T>
void top_rows(Context& ctx, const TopRows<T>& a) {
  if (a.rows == 0) return;
  constexpr int64_t kEntriesOfAWarp = 1024;
  const int64_t warps = std::min<int64_t>((a.n + kEntriesOfAWarp - 1) / kEntriesOfAWarp, cuda::kThreads / kWarpLanes);
  const cuda::Grid grid{cuda::blocks_of(a.rows), static_cast<unsigned>(warps * kWarpLanes),
                        kWarpLanes * sizeof(double)};
  cuda::launch(ctx, a.kName, grid, top_rows_kernel<T>, a);
}

const KernelAdder adder(Device::Kind::cuda, top_rows<float>);

}  // namespace
}  // namespace lmx::ops
