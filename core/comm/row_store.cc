#include "comm/row_store.h"

#include <utility>

#include "lmx/error.h"

namespace lmx::comm {

int32_t RowStore::slot(int32_t row) const {
  const auto r = static_cast<size_t>(row);
  return r < where_.size() ? where_[r] : -1;
}

Rows RowStore::rows(const Context& ctx, std::vector<int32_t> slots) const {
  std::vector<float*> pages;
  for (Tensor page : pages_) pages.push_back(page.data<float>());
  Rows found;
  found.width = width_;
  found.pages = ctx.upload(std::move(pages));
  found.at = ctx.upload(std::move(slots));
  return found;
}

// The first use of a slot finds zeros, because new pages are zero.
int32_t RowStore::take_slot(Context& ctx) {
  if (free_.empty()) {
    const auto first = static_cast<int32_t>(static_cast<int64_t>(pages_.size()) * kPageRows);
    pages_.push_back(ctx.zeros({kPageRows, width_}, DType::f32, MemClass::communication));
    for (int32_t i = kPageRows; i-- > 0;) free_.push_back(first + i);
  }
  const int32_t taken = free_.back();
  free_.pop_back();
  return taken;
}

int32_t& RowStore::where(int32_t row) {
  LMX_CHECK(row >= 0, "row ", row);
  const auto r = static_cast<size_t>(row);
  if (r >= where_.size()) where_.resize(r + 1, -1);
  return where_[r];
}

Rows RowStore::find(Context& ctx, std::span<const int32_t> index) const {
  std::vector<int32_t> slots;
  slots.reserve(index.size());
  for (const int32_t row : index) slots.push_back(slot(row));
  return rows(ctx, std::move(slots));
}

Rows RowStore::at(Context& ctx, std::span<const int32_t> index) {
  for (const int32_t row : index)
    if (int32_t& at = where(row); at < 0) at = take_slot(ctx);
  return find(ctx, index);
}

Rows RowStore::exchange(Context& ctx, std::span<const int32_t> index) {
  commit();
  for (const int32_t row : index) {
    int32_t& at = where(row);
    replaced_.push_back({row, at});
    at = take_slot(ctx);
  }
  return find(ctx, index);
}

void RowStore::commit() {
  for (const Replaced& r : replaced_)
    if (r.slot >= 0) free_.push_back(r.slot);
  replaced_.clear();
}

void RowStore::discard() {
  for (const Replaced& r : replaced_) free_.push_back(std::exchange(where(r.row), r.slot));
  replaced_.clear();
}

void RowStore::forget(int32_t row) {
  if (slot(row) >= 0) free_.push_back(std::exchange(where(row), -1));
}

std::vector<int32_t> RowStore::kept() const {
  std::vector<int32_t> rows;
  for (size_t r = 0; r < where_.size(); ++r)
    if (where_[r] >= 0) rows.push_back(static_cast<int32_t>(r));
  return rows;
}

Rows RowStore::all() const {
  std::vector<int32_t> slots;
  for (const int32_t at : where_)
    if (at >= 0) slots.push_back(at);
  return pages_.empty() ? Rows() : rows(context(), std::move(slots));
}

Tensor RowStore::indices() const {
  const std::vector<int32_t> rows = kept();
  if (rows.empty()) return {};
  return Tensor::from<int32_t>(context().host, {static_cast<int64_t>(rows.size())}, rows,
                               MemClass::communication);
}

Tensor RowStore::values() const {
  const Rows rows = all();
  if (rows.at.size() == 0) return {};
  Context ctx = context();
  Tensor out = ctx.empty({rows.at.size(), width_}, DType::f32, MemClass::communication);
  run_kernel(ctx, CopyRows<float>{rows.from(), {}, Rows(out).from(), rows.at.size(), width_});
  return out;
}

}  // namespace lmx::comm
