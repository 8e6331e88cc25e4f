// The sums of the squares of tensors, by blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/context.h"
#include "optim/measure.h"

namespace lmx::optim {

class SquaredList {
 public:
  // f32 or f64; or, if `summed`, the block_squares() of a tensor. `max_norm`: see SquaredTensor.
  void add(const Tensor& t, bool summed = false, int32_t rule = 0, double max_norm = 0);
  int64_t size() const { return static_cast<int64_t>(tensors_.size()); }
  int64_t blocks() const { return blocks_; }
  // Uploads the tensors that were added. To be called once, before the next functions.
  const Uploaded<SquaredTensor>& upload(Context& ctx);
  // (blocks()) f64, and their sums for each tensor: (size()) f64.
  Tensor block_sums(Context& ctx) const;
  void sum(Context& ctx, const Tensor& blocks, Tensor sums) const;

 private:
  std::vector<SquaredTensor> tensors_;
  Uploaded<SquaredTensor> uploaded_;
  int64_t blocks_ = 0, most_blocks_ = 0;
};

}  // namespace lmx::optim
