#include "comm/row_store.h"

#include <algorithm>

#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx::comm {

float* RowStore::slot(int64_t i) {
  return pages_[static_cast<size_t>(i / kPage)].data<float>() + i % kPage * width_;
}
const float* RowStore::slot(int64_t i) const {
  return pages_[static_cast<size_t>(i / kPage)].data<float>() + i % kPage * width_;
}

float* RowStore::find(int32_t row) {
  const auto r = static_cast<size_t>(row);
  return r < where_.size() && where_[r] >= 0 ? slot(where_[r]) : nullptr;
}

float* RowStore::at(Context& ctx, int32_t row) {
  LMX_CHECK(row >= 0, "row ", row);
  if (float* found = find(row)) return found;
  const auto r = static_cast<size_t>(row);
  if (r >= where_.size()) where_.resize(r + 1, -1);
  if (used_ == static_cast<int64_t>(pages_.size()) * kPage)
    pages_.push_back(ctx.zeros({kPage, width_}, DType::f32, MemClass::communication));
  where_[r] = static_cast<int32_t>(used_);
  return slot(used_++);
}

void RowStore::forget(int32_t row) {
  float* values = find(row);
  if (!values) return;
  std::fill(values, values + width_, 0.0f);
  where_[static_cast<size_t>(row)] =
      -1;  // its slot stays unused: rows are forgotten once, when several ranks become one
}

std::vector<int32_t> RowStore::kept() const {
  std::vector<int32_t> rows;
  for (size_t r = 0; r < where_.size(); ++r)
    if (where_[r] >= 0) rows.push_back(static_cast<int32_t>(r));
  return rows;
}

void RowStore::rescale(double factor) {
  for (Tensor& page : pages_)
    for (float& v : page.values<float>()) v *= static_cast<float>(factor);
}

double RowStore::squares() const {
  double sum = 0;
  for (const Tensor& page : pages_) sum += sum_of_squares(page.values<float>());
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
