// Rows of a table by index, kept for those that were ever asked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx::comm {

// Room is made some rows at a time, counted as communication.
class RowStore {
 public:
  RowStore() = default;
  explicit RowStore(int64_t width) : width_(width) {}
  int64_t width() const { return width_; }
  // Null when the row was never stored.
  const float* find(int32_t row) const;
  // A row of zeros where there was none.
  float* at(Context& ctx, int32_t row);
  // Stores (index.size(), width) values; what was there before can come back until commit().
  void replace(Context& ctx, std::span<const int32_t> index, const float* values);
  void commit() { before_ = {}; }
  void discard();            // undoes the last replace(), if it was not committed
  void forget(int32_t row);  // sets it to zero; it is no longer saved
  double squares() const;
  void rescale(double factor);
  // Stored rows by ascending index: i32 (n) and f32 (n, width). Undefined when there are none.
  Tensor indices() const;
  Tensor values() const;

 private:
  static constexpr int64_t kPage = 256;
  std::vector<int32_t> kept() const;  // ascending
  float* slot(int64_t i);
  const float* slot(int64_t i) const;
  int64_t width_ = 0, used_ = 0;
  std::vector<Tensor> pages_;
  std::vector<int32_t> where_;  // slot of a row, or -1
  struct Before {
    std::vector<int32_t> index;
    Tensor values;
    int64_t used = 0;
  };
  Before before_;
};

}  // namespace lmx::comm
