// The forward pass of attention on tensor cores: a block for each tile of queries of a head and sequence.
#include "ops/attention/attention_mma.h"
#include "ops/attention/mma_softmax.cuh"

namespace lmx::ops {
namespace {

template <class Half, int D>
__global__ void __launch_bounds__(kMmaThreads, kBlocks<D>) forward_kernel(AttentionForward<float, Half> a) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const WarpPlace place;
  const Part part(plan.heads, tiles(plan.queries, place.rows), 1);
  const Pair<float, Half> pair(a.in, part.sequence, part.head);
  const int first = static_cast<int>(part.tile) * place.rows;
  if (first >= pair.q.rows) return;
  const BlockMemory<Half, D, 1> memory(place.rows);
  stage_rows<Half, D>(pair.q, first, place.rows, memory.own[0]);
  WarpQueries<Half, D> queries{pair, memory.own[0], place.row, first + place.row};
  over_keys(pair, place, first, memory, [&](int key, int) {
    queries.template add_keys<kOtherRows>(memory.other[0], memory.other[1], memory.dropped, key);
  });
  queries.finish(a);
}

}  // namespace

template <class Half>
void forward_mma(Context& ctx, const AttentionForward<float, Half>& a) {
  const AttentionPlan& plan = a.in.plan;
  with_columns(plan, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    const MmaTiles all{plan.sequences * plan.heads, plan.queries};
    launch_mma<Half, D, 1>(ctx, "attention_forward_mma", all, forward_kernel<Half, D>, a);
  });
}

template void forward_mma(Context&, const AttentionForward<float, bfloat16>&);
template void forward_mma(Context&, const AttentionForward<float, float16>&);

}  // namespace lmx::ops
