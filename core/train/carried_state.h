// Recurrent state between steps: one row per global slot of this rank's share.
#pragma once

#include "lmx/model.h"

namespace lmx::train {

// gather() hands out the rows of a batch's slots, stage() takes them back, and only commit() makes them count: an
// update that is left out (divergence) leaves the state as it stood.
class CarriedState {
 public:
  // Of the slots [first, first + count).
  CarriedState(Context& ctx, const Model& model, int64_t first, int64_t count);
  // Rows of batch.slots, zero where a sequence is fresh or `keep` is false.
  ModelState gather(Context& ctx, const Batch& batch, bool keep = true) const;
  void stage(const Batch& batch, const ModelState& state);
  void commit();
  void discard() { staged_.clear(); }
  const ModelState& rows() const { return rows_; }  // (count, ...) each
  // Takes this share out of the rows of all `slots` slots, which a checkpoint holds. UserError: another shape or name.
  void load(const std::map<std::string, Tensor>& all, int64_t slots, const std::string& from);

 private:
  const Model& model_;
  int64_t first_, count_;
  ModelState rows_;
  std::vector<std::pair<std::vector<int64_t>, ModelState>> staged_;
};

}  // namespace lmx::train
