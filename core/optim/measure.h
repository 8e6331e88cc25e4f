// The kernels of clipping and of the moving average: their arguments.
#pragma once

#include "lmx/kernels.h"

namespace lmx::optim {

// *sum = the sum of the squares of x (n), accumulated in double. A device divides x into parts, which are numbered over
// all tensors.
template <class T>
struct SquaredTensor {
  const T* x;
  int64_t n, first_part;
  double* sum;
};
template <class T>
struct SquaredSums {
  static constexpr const char* kName = "squared_sums";
  static constexpr int64_t kPart = 1 << 14;  // elements of a part
  const SquaredTensor<T>* tensors;           // (count)
  int64_t count, parts;
};

// The rows of `width` elements that are averaged, and how often.
struct AverageSteps {
  const int32_t* rows = nullptr;       // (count); null: the first `count` rows
  const int64_t* row_times = nullptr;  // (count) averaging steps of each row; null: `times` for all
  int64_t times = 0, count = 0, width = 1;
};

// Averaging steps a <- decay a + (1 - decay) p, where `part` is (1 - decay) p.
template <class T>
LMX_HD inline T average_step(T average, T part, T decay) {
  return decay * average + part;
}
template <class T>
struct AverageRows {
  T* average;
  const T* value;
  T decay;
  AverageSteps steps;
};
// Averages of many tensors, which a device brings up to date with few launches.
template <class T>
struct AverageAll {
  static constexpr const char* kName = "moving_average";
  const AverageRows<T>* averages;  // (count), in the memory of the host; their pointers are in that of the device
  int64_t count;
};

}  // namespace lmx::optim
