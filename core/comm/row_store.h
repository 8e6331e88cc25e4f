// Rows of a table by index. Only rows that were requested are stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx::comm {

// Memory is allocated for several rows at a time and counted as communication. Rows that exchange() replaces are kept
// until commit(), so a step's rows are stored twice.
class RowStore {
 public:
  RowStore() = default;
  explicit RowStore(int64_t width) : width_(width) {}
  int64_t width() const { return width_; }
  // Null if the row was never stored.
  const float* find(int32_t row) const;
  // Returns the row; if it was not stored, it is created with zeros.
  float* at(Context& ctx, int32_t row);
  // Returns new memory for rows, which must be written. The old rows are kept unchanged until commit(), and discard()
  // restores them.
  std::vector<float*> exchange(Context& ctx, std::span<const int32_t> index);
  void commit();
  void discard();            // undoes the last exchange() if it was not committed
  void forget(int32_t row);  // deletes the row, so that it counts as zero and is not saved
  double squares() const;
  void rescale(double factor);
  // Stored rows by ascending index: i32 (n) and f32 (n, width). Undefined if there are none.
  Tensor indices() const;
  Tensor values() const;

 private:
  static constexpr int64_t kPage = 256;
  std::vector<int32_t> kept() const;  // ascending
  float* slot(int32_t i);
  const float* slot(int32_t i) const;
  int32_t take_slot(Context& ctx);  // its values are uninitialised
  int32_t& where(int32_t row);
  int64_t width_ = 0;
  std::vector<Tensor> pages_;
  std::vector<int32_t> where_;  // slot of a row, or -1
  std::vector<int32_t> free_;   // slots without a row
  struct Replaced {
    int32_t row, slot;  // previous slot, or -1
  };
  std::vector<Replaced> replaced_;  // since the last commit()
};

}  // namespace lmx::comm
