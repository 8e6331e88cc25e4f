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

const float* RowStore::find(int32_t row) const {
  const auto r = static_cast<size_t>(row);
  return r < where_.size() && where_[r] >= 0 ? slot(where_[r]) : nullptr;
}

float* RowStore::at(Context& ctx, int32_t row) {
  LMX_CHECK(row >= 0, "row ", row);
  const auto r = static_cast<size_t>(row);
  if (find(row)) return slot(where_[r]);
  if (r >= where_.size()) where_.resize(r + 1, -1);
  if (used_ == static_cast<int64_t>(pages_.size()) * kPage)
    pages_.push_back(ctx.zeros({kPage, width_}, DType::f32, MemClass::communication));
  where_[r] = static_cast<int32_t>(used_);
  return slot(used_++);
}

void RowStore::replace(Context& ctx, std::span<const int32_t> index, const float* values) {
  before_ = {{index.begin(), index.end()}, {}, used_};
  before_.values = ctx.empty({static_cast<int64_t>(index.size()), width_}, DType::f32, MemClass::communication);
  float* old = before_.values.data<float>();
  for (const int32_t row : index) {
    float* to = at(ctx, row);
    old = std::copy_n(to, width_, old);
    std::copy_n(values, width_, to);
    values += width_;
  }
}

// Rows that came with the last replace() have the last slots.
void RowStore::discard() {
  const float* old = before_.values.defined() ? before_.values.data<float>() : nullptr;
  for (const int32_t row : before_.index) {
    int32_t& where = where_[static_cast<size_t>(row)];
    std::copy_n(old, width_, slot(where));  // zeros where the row is new
    old += width_;
    if (where >= before_.used) where = -1;
  }
  if (old) used_ = before_.used;
  before_ = {};
}

void RowStore::forget(int32_t row) {
  if (!find(row)) return;
  float* values = slot(where_[static_cast<size_t>(row)]);
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
