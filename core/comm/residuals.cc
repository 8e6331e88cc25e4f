#include "comm/residuals.h"

#include <algorithm>

#include "comm/partition.h"
#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx::comm {
namespace {

constexpr const char *kPush = ".push", *kSum = ".sum", *kRows = ".rows";

void add_to(float* to, const float* x, int64_t n, float factor = 1) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

[[noreturn]] void misfit(const std::string& name, const Shape& kept, const Shape& needed) {
  throw UserError(str("[codec] the checkpoint keeps a residual ", kept, " of ", name, ", where ", needed,
                      " is needed: it is from another model, or of an older lmx"));
}

// A key of a state, such as "lstm.0.bias" and ".push". `rows`: its values are rows of a table.
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

// Calls row(index, values) for each row that is stored under `key`.
template <class Row>
void each_row(const StateDict& state, const std::string& key, Row&& row) {
  const Tensor &values = state.at(key), &index = state.at(key + kRows);
  if (values.rank() != 2 || index.numel() != values.dim(0))
    misfit(key, values.shape(), {index.numel(), values.dim(-1)});
  for (int64_t i = 0; i < index.numel(); ++i) row(index.data<int32_t>()[i], values.data<float>() + i * values.dim(1));
}

// Shape of the residual of a rank's own values: (rows, columns) of the block; for a table (stored rows, columns).
Shape kept_shape(const std::vector<StateDict>& ranks, const std::string& name) {
  for (const StateDict& state : ranks)
    if (const auto found = state.find(name + kPush); found != state.end() && found->second.rank() == 2)
      return found->second.shape();
  throw UserError(str("[codec] the checkpoint keeps ", name, kSum, " without a ", name, kPush));
}

}  // namespace

void Residuals::add(Side side, const std::string& name, Tensor& values) {
  const auto found = of(side).dense.find(name);
  if (found == of(side).dense.end() || !found->second.now.defined()) return;
  const Tensor& kept = found->second.now;
  if (!(kept.shape() == values.shape())) misfit(name, kept.shape(), values.shape());
  add_to(values.data<float>(), kept.data<float>(), kept.numel());
}

void Residuals::keep(Side side, const std::string& name, Tensor lost) {
  if (lost.numel() == 0) return;
  Kept& kept = of(side).dense[name];
  kept.before = std::exchange(kept.now, std::move(lost));
  kept.changed = true;
}

void Residuals::add_rows(Side side, const std::string& name, std::span<const int32_t> index, Tensor& values) const {
  const auto found = of(side).tables.find(name);
  if (found == of(side).tables.end() || index.empty()) return;
  const int64_t width = values.numel() / static_cast<int64_t>(index.size());
  if (found->second.width() != width) misfit(name, {-1, found->second.width()}, {-1, width});
  float* to = values.data<float>();
  for (const int32_t row : index) {
    if (const float* kept = found->second.find(row)) add_to(to, kept, width);
    to += width;
  }
}

void Residuals::keep_rows(Context& ctx, Side side, const std::string& name, std::span<const int32_t> index,
                          const Tensor& lost) {
  if (index.empty() || lost.numel() == 0) return;
  const int64_t width = lost.numel() / static_cast<int64_t>(index.size());
  const float* values = lost.data<float>();
  for (float* row : table(side, name, width).exchange(ctx, index)) {
    std::copy_n(values, width, row);
    values += width;
  }
}

Residuals::Rows Residuals::exchange(Context& ctx, Side side, const std::string& name, int64_t rows, int64_t width) {
  Rows all;
  if (rows * width == 0) return all;
  const Shape shape{rows, width};
  Kept& kept = of(side).dense[name];
  if (kept.now.defined() && !(kept.now.shape() == shape)) misfit(name, kept.now.shape(), shape);
  kept.before = std::exchange(kept.now, ctx.empty(shape, DType::f32, MemClass::communication));
  kept.changed = true;
  for (int64_t i = 0; i < rows; ++i) {
    all.before.push_back(kept.before.defined() ? std::as_const(kept.before).data<float>() + i * width : nullptr);
    all.now.push_back(kept.now.data<float>() + i * width);
  }
  return all;
}

Residuals::Rows Residuals::exchange_rows(Context& ctx, Side side, const std::string& name,
                                         std::span<const int32_t> index, int64_t width) {
  Rows all;
  if (index.empty() || width == 0) return all;
  RowStore& store = table(side, name, width);
  for (const int32_t row : index) all.before.push_back(store.find(row));
  all.now = store.exchange(ctx, index);
  return all;
}

void Residuals::commit() {
  for (Of* kept : {&push_, &sum_}) {
    for (auto& [name, k] : kept->dense) k = {std::move(k.now), {}, false};
    for (auto& [name, store] : kept->tables) store.commit();
  }
}

void Residuals::discard() {
  for (Of* kept : {&push_, &sum_}) {
    for (auto& [name, k] : kept->dense)
      if (k.changed) k = {std::move(k.before), {}, false};
    std::erase_if(kept->dense, [](const auto& entry) { return !entry.second.now.defined(); });
    for (auto& [name, store] : kept->tables) store.discard();
  }
}

RowStore& Residuals::table(Side side, const std::string& name, int64_t width) {
  RowStore& store = of(side).tables.try_emplace(name, width).first->second;
  if (store.width() != width) misfit(name, {-1, store.width()}, {-1, width});
  return store;
}

Tensor& Residuals::zeros_at_first(Context& ctx, Side side, const std::string& name, Shape shape) {
  Tensor& t = of(side).dense[name].now;
  if (!t.defined()) t = ctx.zeros(shape, DType::f32, MemClass::communication);
  if (!(t.shape() == shape)) misfit(name, t.shape(), shape);
  return t;
}

Tensor Residuals::settle(Context& ctx, const std::string& name, const Tensor& own) {
  if (!push_.dense.contains(name) && !sum_.dense.contains(name)) return own;
  Tensor all = ctx.empty(own.shape(), own.dtype(), MemClass::communication);
  all.copy_from(own);
  for (Of* kept : {&push_, &sum_}) {
    const auto found = kept->dense.find(name);
    if (found == kept->dense.end()) continue;
    const Tensor& now = found->second.now;
    if (now.numel() != own.numel()) misfit(name, now.shape(), own.shape());
    add_to(all.data<float>(), now.data<float>(), own.numel());
    kept->dense.erase(found);
  }
  return all;
}

Tensor Residuals::settle_rows(Context& ctx, const std::string& name, const Tensor& own,
                              const std::vector<int32_t>& index) {
  if (index.empty() || (!push_.tables.contains(name) && !sum_.tables.contains(name))) return own;
  const int64_t width = own.numel() / static_cast<int64_t>(index.size());
  Tensor all = ctx.empty(own.shape(), own.dtype(), MemClass::communication);
  all.copy_from(own);
  for (const Side side : {Side::push, Side::sum}) {
    RowStore& kept = table(side, name, width);
    for (size_t i = 0; i < index.size(); ++i) {
      const float* row = kept.find(index[i]);
      if (!row) continue;
      add_to(all.data<float>() + static_cast<int64_t>(i) * width, row, width);
      kept.forget(index[i]);
    }
  }
  return all;
}

double Residuals::squares(const std::string& name) const {
  double sum = 0;
  for (const Of* kept : {&push_, &sum_}) {
    if (const auto found = kept->dense.find(name); found != kept->dense.end())
      sum += sum_of_squares(found->second.now.values<float>());
    if (const auto found = kept->tables.find(name); found != kept->tables.end()) sum += found->second.squares();
  }
  return sum;
}

void Residuals::rescale(double factor) {
  for (Of* kept : {&push_, &sum_}) {
    for (auto& [name, k] : kept->dense)
      for (float& v : k.now.values<float>()) v *= static_cast<float>(factor);
    for (auto& [name, store] : kept->tables) store.rescale(factor);
  }
}

StateDict Residuals::state() const {
  StateDict all;
  for (const auto& [kept, suffix] : {std::pair(&push_, kPush), std::pair(&sum_, kSum)}) {
    for (const auto& [name, k] : kept->dense) all.emplace(name + suffix, k.now);
    for (const auto& [name, store] : kept->tables) {
      const Tensor index = store.indices();
      if (!index.defined()) continue;
      all.emplace(name + suffix, store.values());
      all.emplace(name + suffix + kRows, index);
    }
  }
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
    const Side side = k.what == kPush ? Side::push : Side::sum;
    if (!k.rows) {
      of(side).dense[k.name].now = t.clone(MemClass::communication);
      continue;
    }
    RowStore& store = table(side, k.name, t.dim(-1));
    each_row(own, key, [&](int32_t row, const float* values) { std::copy_n(values, t.dim(1), store.at(ctx, row)); });
  }
}

void Residuals::merge(Context& ctx, const std::vector<StateDict>& ranks) {
  const float part = 1.0f / static_cast<float>(ctx.ranks);
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [key, t] : ranks[r]) {
      if (is_index(key)) continue;
      const Key k = split(ranks[r], key);
      if (k.what == kSum) {
        k.rows ? merge_sum_rows(ctx, k.name, static_cast<int>(r), ranks)
               : merge_sum(ctx, k.name, t, static_cast<int>(r), ranks);
      } else if (k.rows) {
        RowStore& store = table(Side::push, k.name, t.dim(-1));
        each_row(ranks[r], key,
                 [&](int32_t row, const float* values) { add_to(store.at(ctx, row), values, t.dim(1), part); });
      } else {
        add_to(zeros_at_first(ctx, Side::push, k.name, t.shape()).data<float>(), t.data<float>(), t.numel(), part);
      }
    }
  }
}

// `part`: the residual of the block's part that rank `rank` owned before.
void Residuals::merge_sum(Context& ctx, const std::string& name, const Tensor& part, int rank,
                          const std::vector<StateDict>& ranks) {
  const Shape block = kept_shape(ranks, name);
  const Part old = part_of(block[0], block[1], rank, static_cast<int>(ranks.size())),
             own = part_of(block[0], block[1], ctx.rank, ctx.ranks);
  if (!(part.shape() == Shape{old.rows, old.columns})) misfit(name, part.shape(), {old.rows, old.columns});
  if (own.rows * own.columns == 0) return;
  Tensor& sum = zeros_at_first(ctx, Side::sum, name, {own.rows, own.columns});
  copy_common(part.data<float>(), old, sum.data<float>(), own);
}

void Residuals::merge_sum_rows(Context& ctx, const std::string& name, int rank, const std::vector<StateDict>& ranks) {
  const int64_t width = kept_shape(ranks, name)[1];
  const Part old = table_part(1, width, rank, static_cast<int>(ranks.size())),
             own = table_part(1, width, ctx.rank, ctx.ranks);
  const StateDict& state = ranks[static_cast<size_t>(rank)];
  if (const Shape shape = state.at(name + kSum).shape(); shape[1] != old.columns)
    misfit(name, shape, {shape[0], old.columns});
  each_row(state, name + kSum, [&](int32_t row, const float* values) {
    if (table_by_columns(width, ctx.ranks) || row % ctx.ranks == ctx.rank)
      copy_common(values, old, table(Side::sum, name, own.columns).at(ctx, row), own);
  });
}

}  // namespace lmx::comm
