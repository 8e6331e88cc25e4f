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

CarriedState::CarriedState(Context& ctx, const Model& model, int64_t slots)
    : model_(model), rows_(model.initial_state(ctx, slots)) {}

ModelState CarriedState::gather(Context& ctx, const Batch& batch, bool keep) const {
  ModelState state = model_.initial_state(ctx, batch.sequences());
  if (!keep) return state;
  for (auto& [name, tensor] : state) {
    for (size_t i = 0; i < batch.slots.size(); ++i)
      if (!batch.fresh[i]) copy_row(rows_.at(name), batch.slots[i], tensor, static_cast<int64_t>(i));
  }
  return state;
}

void CarriedState::stage(const Batch& batch, const ModelState& state) {
  staged_.emplace_back(batch.slots, state);
}

void CarriedState::commit() {
  for (const auto& [slots, state] : staged_) {
    for (const auto& [name, tensor] : state)
      for (size_t i = 0; i < slots.size(); ++i) copy_row(tensor, static_cast<int64_t>(i), rows_.at(name), slots[i]);
  }
  staged_.clear();
}

void CarriedState::load(const std::map<std::string, Tensor>& rows, const std::string& from) {
  for (auto& [name, tensor] : rows_) {
    const auto found = rows.find(name);
    if (found == rows.end()) throw UserError(str("[resume] ", from, " has no recurrent state ", name));
    if (found->second.shape() != tensor.shape() || found->second.dtype() != tensor.dtype())
      throw UserError(str("[resume] recurrent state ", name, " is ", describe(found->second), " in ", from, " and ",
                          describe(tensor), " in this recipe"));
    tensor.copy_from(found->second);
  }
}

}  // namespace lmx::train
