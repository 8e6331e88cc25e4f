#include "optim/squares.h"

#include <algorithm>

#include "lmx/error.h"
#include "lmx/optim.h"

namespace lmx {
namespace optim {

void SquaredList::add(const Tensor& t, bool summed, int32_t rule, double max_norm) {
  const auto type = t.dtype() == DType::f64 ? SquaredTensor::wide : SquaredTensor::narrow;
  LMX_CHECK(!summed || type == SquaredTensor::wide, "sums of squares as ", describe(t));
  tensors_.push_back({t.raw(), t.numel(), blocks_, max_norm, rule, summed ? SquaredTensor::summed : type});
  most_blocks_ = std::max(most_blocks_, tensors_.back().blocks());
  blocks_ += tensors_.back().blocks();
}

const Uploaded<SquaredTensor>& SquaredList::upload(Context& ctx) {
  return uploaded_ = ctx.upload(tensors_);
}

Tensor SquaredList::block_sums(Context& ctx) const {
  Tensor blocks = ctx.empty({blocks_}, DType::f64, MemClass::other);
  if (blocks_ > 0)
    run_kernel(ctx, SquaredBlocks<double>{uploaded_.data(), blocks.data<double>(), uploaded_.size(), blocks_});
  return blocks;
}

void SquaredList::sum(Context& ctx, const Tensor& blocks, Tensor sums) const {
  run_kernel(ctx, SquaredSums<double>{uploaded_.data(), blocks.data<double>(), sums.data<double>(), uploaded_.size(),
                                      most_blocks_});
}

}  // namespace optim

Tensor block_squares(Context& ctx, std::span<const Tensor> tensors) {
  optim::SquaredList list;
  for (const Tensor& t : tensors) list.add(t);
  list.upload(ctx);
  return list.block_sums(ctx);
}

}  // namespace lmx
