// Sums of gradients, and the arguments of their kernels. Values are f32 or f64.
#pragma once

#include <vector>

#include "lmx/autograd.h"
#include "lmx/kernels.h"

namespace lmx {

template <class T>
struct Fill {
  static constexpr const char* kName = "fill";
  T* x;  // (n)
  int64_t n;
  T value;
};

template <class T>
struct AddTensor {
  static constexpr const char* kName = "add_gradient";
  const T* x;  // (n)
  T* sum;      // (n)
  int64_t n;
};

// Adds row i to row ids[i] of the table. On the CPU ids may repeat, and rows are added in ascending order; on a device
// they are unique.
template <class T>
struct AddRows {
  static constexpr const char* kName = "add_rows";
  const T* rows;       // (n, width)
  const int32_t* ids;  // (n)
  T* table;            // (V, width)
  int64_t n, width;
};

// Row u of the sums is rows[starts[u]] + ... + rows[starts[u + 1] - 1], added in this order.
template <class T>
struct SumRuns {
  static constexpr const char* kName = "sum_runs";
  const T* const* rows;   // (starts[n]) the address of each row
  const int64_t* starts;  // (n + 1)
  T* sums;                // (n, width)
  int64_t n, width;
};

// x_i = value
void fill(Context& ctx, Tensor& x, double value);

// Loop of the CPU: sum += row, of n elements.
void add_row(float* sum, const float* row, int64_t n);
void add_row(double* sum, const double* row, int64_t n);

}  // namespace lmx
