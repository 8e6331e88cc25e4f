#include "train/carried_state.h"

#include "backend/cuda.h"
#include "comm/rows.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx {
namespace {

// The places of rows; an array on the device is needed only if they are not neighbours in order.
struct Places {
  int64_t first = 0, count = 0;
  Uploaded<int32_t> at;
};

Places upload(const Context& ctx, std::vector<int32_t> at) {
  const auto n = static_cast<int64_t>(at.size());
  bool neighbours = !at.empty() && at[0] >= 0;
  for (size_t i = 1; i < at.size(); ++i) neighbours = neighbours && at[i] == at[i - 1] + 1;
  return neighbours ? Places{at[0], n, {}} : Places{0, n, ctx.upload(std::move(at))};
}

template <class T>
comm::RowsAt<T> rows_at(T* base, int64_t width, const Places& places) {
  return {base + places.first * width, width, 0, places.at.data()};
}

template <class T>
void copy_typed(Context& ctx, const Tensor& from, const Places& from_at, Tensor& to, const Places& to_at) {
  const int64_t width = row_width(from.shape());
  run_kernel(
      ctx, comm::CopyRows<T>{
               rows_at(from.data<T>(), width, from_at), {}, rows_at(to.data<T>(), width, to_at), from_at.count, width});
}

// Row to_at[i] of `to` becomes row from_at[i] of `from`, or zero if from_at[i] is negative.
void copy_rows(Context& ctx, const Tensor& from, const Places& from_at, Tensor& to, const Places& to_at) {
  if (from.dtype() == DType::f64) return copy_typed<double>(ctx, from, from_at, to, to_at);
  copy_typed<float>(ctx, from, from_at, to, to_at);
}

}  // namespace

CarriedState::CarriedState(Context& ctx, const Model& model, int64_t first, int64_t count)
    : model_(model), first_(first), count_(count), rows_(model.initial_state(ctx, count)) {
  for (const auto& [name, rows] : rows_)
    if (rows.dtype() != DType::f32 && rows.dtype() != DType::f64)
      throw UserError(str("[model] state ", name, " is ", describe(rows), "; a state has type f32 or f64"));
}

ModelState CarriedState::gather(Context& ctx, const Batch& batch, bool keep) const {
  if (!keep) return model_.initial_state(ctx, batch.sequences());
  std::vector<int32_t> at;
  for (size_t i = 0; i < batch.slots.size(); ++i)
    at.push_back(batch.fresh[i] ? -1 : static_cast<int32_t>(batch.slots[i] - first_));
  const Places places = upload(ctx, std::move(at));
  ModelState state;
  for (const auto& [name, rows] : rows_) {
    Shape shape = rows.shape();
    shape[0] = places.count;
    copy_rows(ctx, rows, places, state[name] = ctx.empty(shape, rows.dtype()), {0, places.count, {}});
  }
  return state;
}

void CarriedState::stage(const Batch& batch, const ModelState& state) {
  staged_.emplace_back(batch.slots, state);
}

void CarriedState::commit(Context& ctx) {
  for (const auto& [slots, state] : staged_) {
    std::vector<int32_t> at;
    for (const int64_t slot : slots) at.push_back(static_cast<int32_t>(slot - first_));
    const Places places = upload(ctx, std::move(at));
    for (const auto& [name, tensor] : state) copy_rows(ctx, tensor, {0, places.count, {}}, rows_.at(name), places);
  }
  staged_.clear();
}

void CarriedState::load(const std::map<std::string, Tensor>& all, int64_t slots, const std::string& from) {
  for (auto& [name, tensor] : rows_) {
    const auto found = all.find(name);
    if (found == all.end()) throw UserError(str("[resume] ", from, " has no recurrent state ", name));
    const Tensor& saved = found->second;
    Shape whole = tensor.shape();
    whole[0] = slots;
    if (saved.shape() != whole || saved.dtype() != tensor.dtype())
      throw UserError(str("[resume] recurrent state ", name, " is ", describe(saved), " in ", from, " and ", whole, " ",
                          name_of(tensor.dtype()), " in this recipe"));
    if (count_ > 0) copy_values(tensor, saved.slice(first_, first_ + count_));
  }
  for (const auto& [name, tensor] : all)
    if (!rows_.contains(name))
      throw UserError(str("[resume] ", from, " has a recurrent state ", name, ", which this recipe's model lacks"));
}

}  // namespace lmx
