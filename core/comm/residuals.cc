#include "comm/residuals.h"

#include <algorithm>
#include <utility>

#include "lmx/comm.h"
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
  for (const Replaced& r : replaced_)
    if (const int32_t now = std::exchange(where(r.row), r.slot); now >= 0) free_.push_back(now);
  replaced_.clear();
}

void RowStore::forget(std::span<const int32_t> index) {
  commit();
  for (const int32_t row : index)
    if (slot(row) >= 0) replaced_.push_back({row, std::exchange(where(row), -1)});
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
  return Tensor::from<int32_t>(context().host, {static_cast<int64_t>(rows.size())}, rows, MemClass::communication);
}

Tensor RowStore::values() const {
  const Rows rows = all();
  if (rows.at.size() == 0) return {};
  Context ctx = context();
  Tensor out = ctx.empty({rows.at.size(), width_}, DType::f32, MemClass::communication);
  run_kernel(ctx, CopyRows<float>{rows.from(), {}, Rows(out).from(), rows.at.size(), width_});
  return out;
}

namespace {

constexpr const char *kPush = ".push", *kSum = ".sum", *kRows = ".rows";

// to += factor x, in the rows that both have.
void add_to(Context& ctx, const Rows& to, const Rows& x, int64_t rows, float factor = 1) {
  run_kernel(ctx, CopyRows<float>{to.from(), x.from(), to.from(), rows, to.width, factor});
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

// The indices of the rows that are stored under `key`.
std::span<const int32_t> rows_under(const StateDict& state, const std::string& key) {
  const Tensor &values = state.at(key), &index = state.at(key + kRows);
  if (values.rank() != 2 || index.numel() != values.dim(0))
    misfit(key, values.shape(), {index.numel(), values.dim(-1)});
  return index.values<int32_t>();
}

// The columns that two parts of a block have in common.
struct Common {
  int64_t first, count;
};
Common common_columns(const Part& a, const Part& b) {
  const int64_t first = std::max(a.column, b.column), last = std::min(a.column + a.columns, b.column + b.columns);
  return {first, std::max<int64_t>(0, last - first)};
}

// Shape of the residual of a rank's own values: (rows, columns) of the block; for a table (stored rows, columns).
Shape kept_shape(const std::vector<StateDict>& ranks, const std::string& name) {
  for (const StateDict& state : ranks)
    if (const auto found = state.find(name + kPush); found != state.end() && found->second.rank() == 2)
      return found->second.shape();
  throw UserError(str("[codec] the checkpoint keeps ", name, kSum, " without a ", name, kPush));
}

}  // namespace

void Residuals::add(Context& ctx, Side side, const std::string& name, const Tensor& values) {
  const auto found = of(side).dense.find(name);
  if (found == of(side).dense.end() || !found->second.now.defined()) return;
  const Tensor& kept = found->second.now;
  if (!(kept.shape() == values.shape())) misfit(name, kept.shape(), values.shape());
  add_to(ctx, Rows(values), Rows(kept), values.dim(0));
}

void Residuals::keep(Side side, const std::string& name, Tensor lost) {
  if (lost.numel() == 0) return;
  Kept& kept = of(side).dense[name];
  kept.before = std::exchange(kept.now, std::move(lost));
  kept.changed = true;
}

void Residuals::add_rows(Context& ctx, Side side, const std::string& name, std::span<const int32_t> index,
                         const Tensor& values) const {
  const auto found = of(side).tables.find(name);
  if (found == of(side).tables.end() || index.empty()) return;
  const Rows to(values);
  if (found->second.width() != to.width) misfit(name, {-1, found->second.width()}, {-1, to.width});
  add_to(ctx, to, found->second.find(ctx, index), values.dim(0));
}

void Residuals::keep_rows(Context& ctx, Side side, const std::string& name, std::span<const int32_t> index,
                          const Tensor& lost) {
  if (index.empty() || lost.numel() == 0) return;
  const Rows from(lost), to = table(side, name, from.width).exchange(ctx, index);
  run_kernel(ctx, CopyRows<float>{from.from(), {}, to.from(), lost.dim(0), from.width});
}

Residuals::Exchanged Residuals::exchange(Context& ctx, Side side, const std::string& name, int64_t rows,
                                         int64_t width) {
  if (rows * width == 0) return {};
  const Shape shape{rows, width};
  Kept& kept = of(side).dense[name];
  if (kept.now.defined() && !(kept.now.shape() == shape)) misfit(name, kept.now.shape(), shape);
  kept.before = std::exchange(kept.now, ctx.empty(shape, DType::f32, MemClass::communication));
  kept.changed = true;
  return {kept.before.defined() ? Rows(kept.before) : Rows(), Rows(kept.now)};
}

Residuals::Exchanged Residuals::exchange_rows(Context& ctx, Side side, const std::string& name,
                                              std::span<const int32_t> index, int64_t width) {
  if (index.empty() || width == 0) return {};
  RowStore& store = table(side, name, width);
  Rows before = store.find(ctx, index), now = store.exchange(ctx, index);
  return {std::move(before), std::move(now)};
}

void Residuals::commit() {
  for (Of* kept : {&push_, &sum_}) {
    for (auto& [name, k] : kept->dense) k = {std::move(k.now), {}, false};
    kept->settled.clear();
    for (auto& [name, store] : kept->tables) store.commit();
  }
}

void Residuals::discard() {
  for (Of* kept : {&push_, &sum_}) {
    for (auto& [name, k] : kept->dense)
      if (k.changed) k = {std::move(k.before), {}, false};
    std::erase_if(kept->dense, [](const auto& entry) { return !entry.second.now.defined(); });
    kept->dense.merge(kept->settled);
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
    add_to(ctx, Rows(all.reshape({-1})), Rows(now.reshape({-1})), own.numel());
    kept->settled.insert(kept->dense.extract(found));
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
    add_to(ctx, Rows(all), kept.find(ctx, index), all.dim(0));
    kept.forget(index);
  }
  return all;
}

double Residuals::squares(const std::string& name) const {
  Tensor sum;
  const auto add = [&](Context ctx, const Rows& x, int64_t rows, int64_t columns) {
    if (!sum.defined()) sum = ctx.zeros({1}, DType::f64, MemClass::communication);
    run_kernel(ctx, SquareRows<float>{x.from(), rows, columns, sum.data<double>()});
  };
  for (const Of* kept : {&push_, &sum_}) {
    if (const auto found = kept->dense.find(name); found != kept->dense.end()) {
      const Tensor& now = found->second.now;
      add(context_of(now), Rows(now), 1, now.numel());
    }
    if (const auto found = kept->tables.find(name); found != kept->tables.end()) {
      const Rows x = found->second.all();
      if (x.at.size()) add(found->second.context(), x, x.at.size(), x.width);
    }
  }
  return sum.defined() ? context_of(sum).read<double>(sum).value() : 0;
}

void Residuals::rescale(double factor) {
  const auto by = static_cast<float>(factor);
  for (Of* kept : {&push_, &sum_}) {
    for (auto& [name, k] : kept->dense) {
      Context ctx = context_of(k.now);
      const Rows x(k.now);
      run_kernel(ctx, ScaleRows<float>{x.from(), k.now.dim(0), x.width, by});
    }
    for (auto& [name, store] : kept->tables) {
      const Rows x = store.all();
      if (!x.at.size()) continue;
      Context ctx = store.context();
      run_kernel(ctx, ScaleRows<float>{x.from(), x.at.size(), x.width, by});
    }
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
      of(side).dense[k.name].now = ctx.upload(t).clone(MemClass::communication);
      continue;
    }
    RowStore& store = table(side, k.name, t.dim(-1));
    const Rows from(ctx.upload(t)), to = store.at(ctx, rows_under(own, key));
    run_kernel(ctx, CopyRows<float>{from.from(), {}, to.from(), t.dim(0), from.width});
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
        add_to(ctx, store.at(ctx, rows_under(ranks[r], key)), Rows(ctx.upload(t)), t.dim(0), part);
      } else {
        add_to(ctx, Rows(zeros_at_first(ctx, Side::push, k.name, t.shape())), Rows(ctx.upload(t)), t.dim(0), part);
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
  const Rows from(ctx.upload(part)), to(zeros_at_first(ctx, Side::sum, name, {own.rows, own.columns}));
  const int64_t first = std::max(old.row, own.row), last = std::min(old.row + old.rows, own.row + own.rows);
  const Common columns = common_columns(old, own);
  if (last <= first) return;
  run_kernel(ctx, CopyRows<float>{from.from(std::max<int64_t>(0, first - old.row), columns.first - old.column),
                                  {},
                                  to.from(std::max<int64_t>(0, first - own.row), columns.first - own.column),
                                  last - first,
                                  columns.count});
}

void Residuals::merge_sum_rows(Context& ctx, const std::string& name, int rank, const std::vector<StateDict>& ranks) {
  const int64_t width = kept_shape(ranks, name)[1];
  const Part old = table_part(1, width, rank, static_cast<int>(ranks.size())),
             own = table_part(1, width, ctx.rank, ctx.ranks);
  const StateDict& state = ranks[static_cast<size_t>(rank)];
  if (const Shape shape = state.at(name + kSum).shape(); shape[1] != old.columns)
    misfit(name, shape, {shape[0], old.columns});
  std::vector<int32_t> index, places;
  const auto rows = rows_under(state, name + kSum);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!table_by_columns(width, ctx.ranks) && rows[i] % ctx.ranks != ctx.rank) continue;
    index.push_back(rows[i]);
    places.push_back(static_cast<int32_t>(i));
  }
  if (index.empty()) return;
  const Rows from(ctx.upload(state.at(name + kSum)), ctx.upload(std::move(places))),
      to = table(Side::sum, name, own.columns).at(ctx, index);
  const Common columns = common_columns(old, own);
  run_kernel(ctx, CopyRows<float>{from.from(0, columns.first - old.column),
                                  {},
                                  to.from(0, columns.first - own.column),
                                  from.at.size(),
                                  columns.count});
}

}  // namespace lmx::comm
