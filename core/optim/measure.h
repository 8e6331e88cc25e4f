// The kernels of clipping and of the moving average: their arguments.
#pragma once

#include "lmx/kernels.h"

namespace lmx::optim {

// *sum = the sum of the squares of x (n), accumulated in double.
template <class T>
struct SquaredSum {
  static constexpr const char* kName = "squared_sum";
  const T* x;
  int64_t n;
  double* sum;
};

// `times` averaging steps a <- decay a + (1 - decay) p, for rows of `width` elements. `rows` (count): the rows, null:
// the first `count`. `row_times` (count): steps of each row; null: `times` for all.
template <class T>
struct AverageRows {
  static constexpr const char* kName = "moving_average";
  T* average;
  const T* value;
  T decay;
  const int32_t* rows;
  const int64_t* row_times;
  int64_t times, count, width;
};

}  // namespace lmx::optim
