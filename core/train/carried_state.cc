#include "train/carried_state.h"

#include <cstring>

#include "lmx/error.h"

namespace lmx::train {
namespace {

void copy_row(const Tensor& from, int64_t from_row, Tensor& to, int64_t to_row) {
  const size_t bytes = static_cast<size_t>(from.bytes() / from.dim(0));
  std::memcpy(static_cast<std::byte*>(to.raw()) + static_cast<size_t>(to_row) * bytes,
              static_cast<const std::byte*>(from.raw()) + static_cast<size_t>(from_row) * bytes, bytes);
}

}  // namespace

CarriedState::CarriedState(Context& ctx, const Model& model, int64_t first, int64_t count)
    : model_(model), first_(first), count_(count), rows_(model.initial_state(ctx, count)) {}

ModelState CarriedState::gather(Context& ctx, const Batch& batch, bool keep) const {
  ModelState state = model_.initial_state(ctx, batch.sequences());
  if (!keep) return state;
  for (auto& [name, tensor] : state) {
    for (size_t i = 0; i < batch.slots.size(); ++i)
      if (!batch.fresh[i]) copy_row(rows_.at(name), batch.slots[i] - first_, tensor, static_cast<int64_t>(i));
  }
  return state;
}

void CarriedState::stage(const Batch& batch, const ModelState& state) {
  staged_.emplace_back(batch.slots, state);
}

void CarriedState::commit() {
  for (const auto& [slots, state] : staged_) {
    for (const auto& [name, tensor] : state)
      for (size_t i = 0; i < slots.size(); ++i)
        copy_row(tensor, static_cast<int64_t>(i), rows_.at(name), slots[i] - first_);
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
    if (count_ > 0) tensor.copy_from(saved.slice(first_, first_ + count_));
  }
  for (const auto& [name, tensor] : all)
    if (!rows_.contains(name))
      throw UserError(str("[resume] ", from, " has a recurrent state ", name, ", which this recipe's model lacks"));
}

}  // namespace lmx::train
