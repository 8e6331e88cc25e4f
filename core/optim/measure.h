// The kernels of clipping and of the moving average: their arguments.
#pragma once

#include <cmath>

#include "lmx/kernels.h"
#include "lmx/optim.h"

namespace lmx::optim {

// A gradient: n elements of type f32 or f64, and the rule that clips it. Or the sums of the squares of the blocks of a
// gradient, f64. Blocks have kSumBlock elements and are numbered over all gradients.
struct SquaredTensor {
  enum Values : int32_t { narrow, wide, summed };  // f32, f64, sums
  const void* x;
  int64_t n, first_block;
  double max_norm;  // of its rule; 0: not clipped
  int32_t rule;
  Values values;
  LMX_HD int64_t blocks() const { return values == summed ? n : (n + kSumBlock - 1) / kSumBlock; }
  LMX_HD int64_t block_end(int64_t begin) const { return begin + kSumBlock < n ? begin + kSumBlock : n; }
};

// blocks[first_block + b] = the sum of the squares of block b of each tensor, accumulated in T = double.
template <class T>
struct SquaredBlocks {
  static constexpr const char* kName = "squared_blocks";
  const SquaredTensor* tensors;  // (count)
  T* blocks;                     // (total)
  int64_t count, total;
};

// sums[k] = the sum of the blocks of tensor k.
template <class T>
struct SquaredSums {
  static constexpr const char* kName = "squared_sums";
  const SquaredTensor* tensors;  // (count)
  const T* blocks;
  T* sums;  // (count)
  int64_t count, most_blocks;
};

// From these sums: factors[r] = max_norm / norm if the norm of the gradients of rule r, times `unscale`, is above
// max_norm, else 1; NaN for all rules if the sum of all squares is not finite. factors[rules] is that sum. Entries of
// rules without gradients are not written.
template <class T>
struct ClipFactors {
  static constexpr const char* kName = "clip_factors";
  const SquaredTensor* tensors;  // (count), those of a rule after each other
  const T* sums;                 // (count)
  int64_t count, rules;
  T unscale;
  T* factors;  // (rules + 1)

  LMX_HD void compute() const {
    T total = 0;
    for (int64_t k = 0; k < count;) {
      const int32_t rule = tensors[k].rule;
      T sum = 0;
      for (; k < count && tensors[k].rule == rule; ++k) sum += sums[k];
      factors[rule] = sum;
      total += sum;
    }
    for (int64_t k = 0; k < count; ++k)
      if (k == 0 || tensors[k].rule != tensors[k - 1].rule) factors[tensors[k].rule] = factor(tensors[k], total);
    factors[rules] = total;
  }

 private:
  LMX_HD T factor(const SquaredTensor& t, T total) const {
    if (total - total != 0) return total - total;  // NaN, for an infinity too
    const T norm = std::sqrt(factors[t.rule]) * unscale, most = static_cast<T>(t.max_norm);
    return most > 0 && norm > most ? most / norm : T(1);
  }
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
