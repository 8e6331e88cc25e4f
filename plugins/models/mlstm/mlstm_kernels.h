// The pointwise kernels of one step's product (lmx/pointwise.h). The gates use the LSTM's kernels (lmx/lstm_cell.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::mlstm {

// m = a * b, elementwise; all are (B, H). T: the value type, S: the kept type (lmx/operand.h).
template <class T, class S>
struct ProductStep {
  static constexpr const char* kName = "mlstm_product";
  static constexpr int64_t kGrain = 1 << 14;
  const S *a, *b;
  T* m;  // written if S is T; else only its operand is
  int64_t batch, cells;
  OperandTarget operand = {};  // of m

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t at = row * cells + j;
    auto product = lanes.load(a + at);
    const auto other = lanes.load(b + at);
    for (int e = 0; e < Lanes::kCount; ++e) product[e] *= other[e];
    if constexpr (std::is_same_v<S, T>) lanes.store(m + at, product);
    lanes.store(operand, at, product);
  }
};

// a is replaced by dm * b, b by dm * a.
template <class T, class S>
struct ProductBackwardStep {
  static constexpr const char* kName = "mlstm_product_backward";
  static constexpr int64_t kGrain = 1 << 14;
  S *a, *b;
  const S* dm;
  int64_t batch, cells;

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t at = row * cells + j;
    auto first = lanes.load(a + at), second = lanes.load(b + at);
    const auto slope = lanes.load(dm + at);
    for (int e = 0; e < Lanes::kCount; ++e) {
      const T was = first[e];
      first[e] = slope[e] * second[e];
      second[e] = slope[e] * was;
    }
    lanes.store(a + at, first);
    lanes.store(b + at, second);
  }
};

}  // namespace lmx::mlstm
