// The residuals that error feedback keeps between steps, for each parameter: of this rank's own values ("push"), and of
// the sums that it owns ("sum").
//
// commit() makes the residuals of a step permanent, once the step's update is made. If the update is skipped, its
// gradient is lost: discard() restores the residuals before the step.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/rows.h"
#include "lmx/parameters.h"

namespace lmx::comm {

// Rows of a table by index. Only rows that were requested are stored.

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
  void discard();  // undoes the last exchange() or forget() if it was not committed
  // Deletes rows, so that they count as zero and are not saved.
  void forget(std::span<const int32_t> index);
  Rows all() const;                                          // stored rows by ascending index
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

enum class Side : uint8_t { push, sum };

class Residuals {
 public:
  // values (rows, columns) += the residual. UserError: the residual in the checkpoint has another shape.
  void add(Context& ctx, Side side, const std::string& name, const Tensor& values);
  // Replaces the residual by `lost`, the new quantisation error; `lost` must not be written to again.
  void keep(Side side, const std::string& name, Tensor lost);
  // The same for rows of a table: values (index.size(), columns). Other rows do not change.
  void add_rows(Context& ctx, Side side, const std::string& name, std::span<const int32_t> index,
                const Tensor& values) const;
  void keep_rows(Context& ctx, Side side, const std::string& name, std::span<const int32_t> index, const Tensor& lost);
  // The rows of a block: `before` are the residuals to add (some or all may not exist), `now` is the memory for the new
  // ones. All of `now` must be written. Both are valid until commit(), discard() or the next call for the block.
  struct Exchanged {
    Rows before, now;
  };
  Exchanged exchange(Context& ctx, Side side, const std::string& name, int64_t rows, int64_t width);
  Exchanged exchange_rows(Context& ctx, Side side, const std::string& name, std::span<const int32_t> index,
                          int64_t width);
  void commit();
  void discard();
  // For a run on one rank, which encodes nothing: returns the gradient plus its residuals, and deletes them.
  Tensor settle(Context& ctx, const std::string& name, const Tensor& own);
  Tensor settle_rows(Context& ctx, const std::string& name, const Tensor& own, const std::vector<int32_t>& index);
  double squares(const std::string& name) const;
  void rescale(double factor);
  StateDict state() const;
  void load(Context& ctx, const std::vector<StateDict>& ranks);

 private:
  struct Kept {
    Tensor now, before;
    bool changed = false;  // since the last commit()
  };
  struct Of {
    std::map<std::string, Kept> dense, settled;  // settled: deleted by settle(), until commit()
    std::map<std::string, RowStore> tables;
  };
  Of& of(Side side) { return side == Side::push ? push_ : sum_; }
  const Of& of(Side side) const { return side == Side::push ? push_ : sum_; }
  RowStore& table(Side side, const std::string& name, int64_t width);
  Tensor& zeros_at_first(Context& ctx, Side side, const std::string& name, Shape shape);
  void take(Context& ctx, const StateDict& own);
  void merge(Context& ctx, const std::vector<StateDict>& ranks);
  void merge_sum(Context& ctx, const std::string& name, const Tensor& part, int rank,
                 const std::vector<StateDict>& ranks);
  void merge_sum_rows(Context& ctx, const std::string& name, int rank, const std::vector<StateDict>& ranks);
  Of push_, sum_;
};

}  // namespace lmx::comm
