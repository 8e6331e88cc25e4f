#include "comm/residuals.h"

#include <algorithm>
#include <set>

#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx::comm {
namespace {

constexpr const char *kPush = ".push", *kSum = ".sum", *kRows = ".rows";

void add(float* to, const float* x, int64_t n, float factor = 1) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

[[noreturn]] void misfit(const std::string& name, const Shape& kept, const Shape& needed) {
  throw UserError(str("[codec] the checkpoint keeps a residual ", kept, " of ", name, ", where ", needed,
                      " is needed: it is from another model"));
}

// A key of a state: "lstm.0.bias" and ".push", and whether its values are rows of a table.
struct Key {
  std::string name, what;
  bool rows = false;
};
Key split(const StateDict& state, const std::string& key) {
  for (const char* what : {kPush, kSum}) {
    if (key.ends_with(what))
      return {key.substr(0, key.size() - std::string(what).size()), what, state.contains(key + kRows)};
  }
  throw UserError(
      str("[codec] the checkpoint keeps '", key, "', which is no residual: expected NAME.push or NAME.sum"));
}
bool is_index(const std::string& key) {
  return key.ends_with(kRows) && (key.ends_with(str(kPush, kRows)) || key.ends_with(str(kSum, kRows)));
}

// row(index, values) for each row that is kept under `key`.
template <class Row>
void each_row(const StateDict& state, const std::string& key, Row&& row) {
  const Tensor &values = state.at(key), &index = state.at(key + kRows);
  if (values.rank() != 2 || index.numel() != values.dim(0))
    misfit(key, values.shape(), {index.numel(), values.dim(-1)});
  for (int64_t i = 0; i < index.numel(); ++i) row(index.data<int32_t>()[i], values.data<float>() + i * values.dim(1));
}

}  // namespace

Tensor& Residuals::dense(Context& ctx, Dense& all, const std::string& name, Shape shape) {
  Tensor& t = all[name];
  if (!t.defined()) t = ctx.zeros(shape, DType::f32, MemClass::communication);
  if (!(t.shape() == shape)) misfit(name, t.shape(), shape);
  return t;
}

RowStore& Residuals::rows(Rows& all, const std::string& name, int64_t width) {
  RowStore& store = all.try_emplace(name, width).first->second;
  if (store.width() != width) misfit(name, {-1, store.width()}, {-1, width});
  return store;
}

Tensor Residuals::settle(Context& ctx, const std::string& name, const Tensor& own) {
  if (!push_.contains(name) && !sum_.contains(name)) return own;
  Tensor all = ctx.empty(own.shape(), own.dtype(), MemClass::communication);
  all.copy_from(own);
  for (Dense* kept : {&push_, &sum_}) {
    const auto found = kept->find(name);
    if (found == kept->end()) continue;
    if (found->second.numel() != own.numel()) misfit(name, found->second.shape(), own.shape());
    add(all.data<float>(), found->second.data<float>(), own.numel());
    kept->erase(found);
  }
  return all;
}

Tensor Residuals::settle_rows(Context& ctx, const std::string& name, const Tensor& own,
                              const std::vector<int32_t>& index) {
  if (index.empty() || (!row_push_.contains(name) && !row_sum_.contains(name))) return own;
  const int64_t width = own.numel() / static_cast<int64_t>(index.size());
  Tensor all = ctx.empty(own.shape(), own.dtype(), MemClass::communication);
  all.copy_from(own);
  for (RowStore* kept : {&push_rows(name, width), &sum_rows(name, width)}) {
    for (size_t i = 0; i < index.size(); ++i) {
      const float* row = kept->find(index[i]);
      if (!row) continue;
      add(all.data<float>() + static_cast<int64_t>(i) * width, row, width);
      kept->forget(index[i]);
    }
  }
  return all;
}

double Residuals::squares(const std::string& name) const {
  double sum = 0;
  for (const Dense* kept : {&push_, &sum_})
    if (const auto found = kept->find(name); found != kept->end()) sum += sum_of_squares(found->second.values<float>());
  for (const Rows* kept : {&row_push_, &row_sum_})
    if (const auto found = kept->find(name); found != kept->end()) sum += found->second.squares();
  return sum;
}

void Residuals::rescale(double factor) {
  for (Dense* kept : {&push_, &sum_})
    for (auto& [name, t] : *kept)
      for (float& v : t.values<float>()) v *= static_cast<float>(factor);
  for (Rows* kept : {&row_push_, &row_sum_})
    for (auto& [name, store] : *kept) store.rescale(factor);
}

StateDict Residuals::state() const {
  StateDict all;
  for (const auto& [name, t] : push_) all.emplace(name + kPush, t);
  for (const auto& [name, t] : sum_) all.emplace(name + kSum, t);
  const auto add_rows = [&all](const std::string& key, const RowStore& store) {
    if (!store.indices().defined()) return;
    all.emplace(key, store.values());
    all.emplace(key + kRows, store.indices());
  };
  for (const auto& [name, store] : row_push_) add_rows(name + kPush, store);
  for (const auto& [name, store] : row_sum_) add_rows(name + kSum, store);
  return all;
}

void Residuals::load(Context& ctx, const std::vector<StateDict>& ranks) {
  *this = Residuals();
  if (static_cast<int>(ranks.size()) == ctx.ranks)
    take(ctx, ranks[static_cast<size_t>(ctx.rank)]);
  else
    merge(ctx, ranks);
}

void Residuals::take(Context& ctx, const StateDict& own) {
  for (const auto& [key, t] : own) {
    if (is_index(key)) continue;
    const Key k = split(own, key);
    const bool push = k.what == kPush;
    if (!k.rows) {
      (push ? push_ : sum_)[k.name] = t.clone(MemClass::communication);
      continue;
    }
    RowStore& store = rows(push ? row_push_ : row_sum_, k.name, t.dim(-1));
    each_row(own, key, [&](int32_t row, const float* values) { std::copy_n(values, t.dim(1), store.at(ctx, row)); });
  }
}

void Residuals::merge(Context& ctx, const std::vector<StateDict>& ranks) {
  const float part = 1.0f / static_cast<float>(ctx.ranks);
  Dense sums;  // chunks of the old ranks, one after the other
  for (const StateDict& state : ranks) {
    for (const auto& [key, t] : state) {
      if (is_index(key)) continue;
      const Key k = split(state, key);
      const bool push = k.what == kPush;
      if (k.rows) {
        RowStore& store = rows(push ? row_push_ : row_sum_, k.name, t.dim(-1));
        each_row(state, key, [&](int32_t row, const float* values) {
          if (push) add(store.at(ctx, row), values, t.dim(1), part);
          if (!push && row % ctx.ranks == ctx.rank) std::copy_n(values, t.dim(1), store.at(ctx, row));
        });
      } else if (push) {
        add(dense(ctx, push_, k.name, t.shape()).data<float>(), t.data<float>(), t.numel(), part);
      } else {
        Tensor& sum = sums[k.name];
        const int64_t before = sum.defined() ? sum.dim(0) : 0;
        Tensor longer = ctx.empty({before + t.dim(0), t.dim(1)}, DType::f32, MemClass::communication);
        if (before) longer.slice(0, before).copy_from(sum);
        longer.slice(before, before + t.dim(0)).copy_from(t);
        sum = longer;
      }
    }
  }
  for (const auto& [name, sum] : sums) {
    const int64_t begin = chunk_begin(sum.dim(0), ctx.rank, ctx.ranks),
                  end = chunk_begin(sum.dim(0), ctx.rank + 1, ctx.ranks);
    sum_[name] = sum.slice(begin, end).clone(MemClass::communication);
  }
}

}  // namespace lmx::comm
