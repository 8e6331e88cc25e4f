// Rows of a table by index. Only rows that were requested are stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/rows.h"

namespace lmx::comm {

// Memory is allocated for several rows at a time and counted as communication. Rows that exchange() replaces are kept
// until commit(), so a step's rows are stored twice.
class RowStore {
 public:
  RowStore() = default;
  explicit RowStore(int64_t width) : width_(width) {}
  int64_t width() const { return width_; }
  // Rows that were never stored do not exist in the result. A result is valid until the next call that changes the
  // store.
  Rows find(Context& ctx, std::span<const int32_t> index) const;
  // Rows that were not stored are created with zeros. REQUIRES: exchange() and forget() were never called.
  Rows at(Context& ctx, std::span<const int32_t> index);
  // Returns new memory for rows, which must be written. The old rows are kept unchanged until commit(), and discard()
  // restores them.
  Rows exchange(Context& ctx, std::span<const int32_t> index);
  void commit();
  void discard();            // undoes the last exchange() if it was not committed
  void forget(int32_t row);  // deletes the row, so that it counts as zero and is not saved
  Rows all() const;          // stored rows by ascending index
  Context context() const { return context_of(pages_[0]); }  // REQUIRES: a row was stored
  // The indices of the stored rows, i32 (n) on the host, and f32 (n, width). Undefined if there are none.
  Tensor indices() const;
  Tensor values() const;

 private:
  std::vector<int32_t> kept() const;  // ascending
  Rows rows(const Context& ctx, std::vector<int32_t> slots) const;
  int32_t slot(int32_t row) const;  // -1: never stored
  int32_t take_slot(Context& ctx);
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
