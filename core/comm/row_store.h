// Rows of a table by index, kept for those that were ever asked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx::comm {

// Room is made some rows at a time, counted as communication; what exchange() replaces
// is kept until commit(), so there is room for a step's rows twice.
class RowStore {
 public:
  RowStore() = default;
  explicit RowStore(int64_t width) : width_(width) {}
  int64_t width() const { return width_; }
  // Null when the row was never stored.
  const float* find(int32_t row) const;
  // A row of zeros where there was none.
  float* at(Context& ctx, int32_t row);
  // New room for rows, to be written; what was there stays as it is and can come back until commit().
  std::vector<float*> exchange(Context& ctx, std::span<const int32_t> index);
  void commit();
  void discard();            // undoes the last exchange(), if it was not committed
  void forget(int32_t row);  // sets it to zero; it is no longer saved
  double squares() const;
  void rescale(double factor);
  // Stored rows by ascending index: i32 (n) and f32 (n, width). Undefined when there are none.
  Tensor indices() const;
  Tensor values() const;

 private:
  static constexpr int64_t kPage = 256;
  std::vector<int32_t> kept() const;  // ascending
  float* slot(int32_t i);
  const float* slot(int32_t i) const;
  int32_t take_slot(Context& ctx);  // of any values
  int32_t& where(int32_t row);
  int64_t width_ = 0;
  std::vector<Tensor> pages_;
  std::vector<int32_t> where_;  // slot of a row, or -1
  std::vector<int32_t> free_;   // slots of no row
  struct Replaced {
    int32_t row, slot;  // where it was, or -1
  };
  std::vector<Replaced> replaced_;  // since commit()
};

}  // namespace lmx::comm
