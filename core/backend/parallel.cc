#include "lmx/parallel.h"

#include <omp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/serial.h"
#include "lmx/kernels.h"

namespace lmx {

namespace {

thread_local bool serial_here = false;

}  // namespace

Serial::Serial(bool serial) : before_(std::exchange(serial_here, serial)) {}
Serial::~Serial() {
  serial_here = before_;
}

int allowed_threads() {
  return omp_in_parallel() ? 1 : omp_get_max_threads();
}

int num_threads() {
  return serial_here ? 1 : allowed_threads();
}

void set_num_threads(int n) {
#ifdef __SANITIZE_THREAD__
  n = 1;  // libgomp is not instrumented: every loop on several threads would be reported as a race
#endif
  omp_set_num_threads(n);
}

ThreadLimit::ThreadLimit(int most) : before_(allowed_threads()) {
  if (most < before_) set_num_threads(most);
}
ThreadLimit::~ThreadLimit() {
  set_num_threads(before_);
}

namespace {

constexpr int64_t kBlock = 4096;  // fixed, so that the order of additions does not depend on the number of threads

LMX_SIMD double block_sum(const float* x, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return s;
}

}  // namespace

double sum_of_squares(std::span<const float> values) {
  const auto n = static_cast<int64_t>(values.size());
  if (n <= kBlock) return block_sum(values.data(), n);
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  parallel_for(blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kBlock;
      sums[static_cast<size_t>(b)] = block_sum(values.data() + first, std::min(kBlock, n - first));
    }
  });
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

}  // namespace lmx
