#include "comm/row_store.h"

#include <algorithm>
#include <utility>

#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx::comm {

float* RowStore::slot(int32_t i) {
  return pages_[static_cast<size_t>(i / kPage)].data<float>() + i % kPage * width_;
}
const float* RowStore::slot(int32_t i) const {
  return pages_[static_cast<size_t>(i / kPage)].data<float>() + i % kPage * width_;
}

int32_t RowStore::take_slot(Context& ctx) {
  if (free_.empty()) {
    const auto first = static_cast<int32_t>(static_cast<int64_t>(pages_.size()) * kPage);
    pages_.push_back(ctx.empty({kPage, width_}, DType::f32, MemClass::communication));
    for (int32_t i = kPage; i-- > 0;) free_.push_back(first + i);
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

const float* RowStore::find(int32_t row) const {
  const auto r = static_cast<size_t>(row);
  return r < where_.size() && where_[r] >= 0 ? slot(where_[r]) : nullptr;
}

float* RowStore::at(Context& ctx, int32_t row) {
  int32_t& at = where(row);
  if (at < 0) {
    at = take_slot(ctx);
    std::fill_n(slot(at), width_, 0.0f);
  }
  return slot(at);
}

std::vector<float*> RowStore::exchange(Context& ctx, std::span<const int32_t> index) {
  commit();
  std::vector<float*> rows;
  rows.reserve(index.size());
  for (const int32_t row : index) {
    int32_t& at = where(row);
    replaced_.push_back({row, at});
    at = take_slot(ctx);
    rows.push_back(slot(at));
  }
  return rows;
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
  if (find(row)) free_.push_back(std::exchange(where(row), -1));
}

std::vector<int32_t> RowStore::kept() const {
  std::vector<int32_t> rows;
  for (size_t r = 0; r < where_.size(); ++r)
    if (where_[r] >= 0) rows.push_back(static_cast<int32_t>(r));
  return rows;
}

void RowStore::rescale(double factor) {
  for (const int32_t row : kept())
    for (float& v : std::span(slot(where_[static_cast<size_t>(row)]), static_cast<size_t>(width_)))
      v *= static_cast<float>(factor);
}

double RowStore::squares() const {
  double sum = 0;
  for (const int32_t row : kept())
    sum += sum_of_squares(std::span<const float>(find(row), static_cast<size_t>(width_)));
  return sum;
}

Tensor RowStore::indices() const {
  const std::vector<int32_t> rows = kept();
  if (rows.empty()) return {};
  return Tensor::from<int32_t>(pages_[0].allocator(), {static_cast<int64_t>(rows.size())}, rows,
                               MemClass::communication);
}

Tensor RowStore::values() const {
  const std::vector<int32_t> rows = kept();
  if (rows.empty()) return {};
  Tensor out = Tensor::empty(pages_[0].allocator(), {static_cast<int64_t>(rows.size()), width_}, DType::f32,
                             MemClass::communication);
  float* to = out.data<float>();
  for (const int32_t row : rows) to = std::copy_n(slot(where_[static_cast<size_t>(row)]), width_, to);
  return out;
}

}  // namespace lmx::comm
