// Loops over threads (OpenMP) that give the same result for any number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "lmx/api.h"

namespace lmx {

LMX_API int num_threads();            // number of threads of a parallel region of this thread
LMX_API void set_num_threads(int n);  // for regions of this thread

// body(begin, end) over a static partition of [0, n), at least `grain` elements each.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  const int64_t parts = grain > 0 && n > grain ? (n + grain - 1) / grain : 1;
  const int threads = static_cast<int>(parts < num_threads() ? parts : num_threads());
  if (threads <= 1) {
    body(int64_t{0}, n);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) body(n * t / threads, n * (t + 1) / threads);
}

// Sum of squares in double over fixed blocks, so that the result does not depend on the number of threads.
LMX_API double sum_of_squares(std::span<const float> values);

}  // namespace lmx
