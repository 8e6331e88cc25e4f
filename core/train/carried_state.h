// Recurrent state between steps: one row for each global slot that belongs to this rank.
#pragma once

#include "lmx/model.h"

namespace lmx {

// gather() returns the rows of a batch's slots. stage() stores new rows, and commit() puts them into effect. If an
// update is skipped because of divergence, discard() keeps the state unchanged.
class CarriedState {
 public:
  // The state of the slots [first, first + count).
  CarriedState(Context& ctx, const Model& model, int64_t first, int64_t count);
  // Rows of batch.slots. A row is zero if its sequence starts a new text, or if `keep` is false.
  ModelState gather(Context& ctx, const Batch& batch, bool keep = true) const;
  void stage(const Batch& batch, const ModelState& state);
  void commit(Context& ctx);
  void discard() { staged_.clear(); }
  const ModelState& rows() const { return rows_; }  // (count, ...) each
  // Loads this rank's rows from those of all `slots` slots, as a checkpoint stores them. UserError: another shape or
  // name.
  void load(const std::map<std::string, Tensor>& all, int64_t slots, const std::string& from);

 private:
  const Model& model_;
  int64_t first_, count_;
  ModelState rows_;
  std::vector<std::pair<std::vector<int64_t>, ModelState>> staged_;
};

}  // namespace lmx
