// Attention of short sentences on tensor cores, in one pass. A block has all queries and keys of one head of one
// sentence: a row of weights fits in the registers of a warp, and backward computes the weights and the masks of
// dropout once for the three gradients.
#include <algorithm>

#include "ops/attention/attention_mma.h"
#include "ops/attention/mma_softmax.cuh"

namespace lmx::ops {
namespace {

// A block has `Rows` rows of q, k, v and dy, those beyond the sentence being zero, and a warp for each 16 of them.
template <int Rows>
constexpr int kSentenceThreads = (Rows / kWarpRows) * cuda::kWarpLanes;
// The number of blocks for which a multiprocessor must have registers.
template <int D, int Rows>
constexpr int kSentenceBlocks = (D > 64 ? 256 : 384) / kSentenceThreads<Rows>;

// The shared memory of a block.
template <class Half, int D, int Rows>
struct SentenceMemory {
  using Operand = HeadMatrix<Half, D>;                        // rows of q, k, v or dy
  using Weights = cuda::SharedMatrix<Half, Rows + kPadding>;  // a number for each query and key
  static constexpr int kOperand = Rows * (D + kPadding), kWeights = Rows * (Rows + kPadding);

  LMX_HD static constexpr size_t bytes(int operands, int weights) {
    return sizeof(Half) * static_cast<size_t>(operands * kOperand + weights * kWeights) + DropTile::kEntries * Rows;
  }
  __device__ static Operand operand(int n) { return {cuda::shared<Half>() + n * kOperand}; }
  __device__ static Weights weights(int operands, int n) { return {operand(operands).data + n * kWeights}; }
  __device__ static DropTile dropped(int operands, int weights) {
    return {reinterpret_cast<uint8_t*>(SentenceMemory::weights(operands, weights).data)};
  }
};

// Stages all rows of an operand of the sentence.
template <class Half, int D, int Rows>
__device__ void stage_sentence(const HeadRows<Half>& from, const HeadMatrix<Half, D>& to) {
  constexpr int kAll = D / 16;  // passes
  stage_rows<Half, D, (kAll < 4 ? kAll : 4)>(from, 0, Rows, to);
}

// The head and sentence of a block.
template <class Half>
__device__ Pair<float, Half> pair_of_block(const AttentionInput<float, Half>& in) {
  const auto [sentence, head] = cuda::position_of(blockIdx.x, in.plan.heads);
  return Pair<float, Half>(in, sentence, head);
}

template <class Half, int D, int Rows>
__global__ void __launch_bounds__(kSentenceThreads<Rows>, (kSentenceBlocks<D, Rows>))
    sentence_forward(AttentionForward<float, Half> a) {
  cuda::wait_for_previous();
  using Memory = SentenceMemory<Half, D, Rows>;
  const Pair<float, Half> pair = pair_of_block(a.in);
  const HeadMatrix<Half, D> q = Memory::operand(0), k = Memory::operand(1), v = Memory::operand(2);
  const DropTile dropped = Memory::dropped(3, 0);
  stage_sentence<Half, D, Rows>(pair.q, q);
  stage_sentence<Half, D, Rows>(pair.k, k);
  stage_sentence<Half, D, Rows>(pair.v, v);
  dropped.stage(pair, 0, Rows, 0);
  __syncthreads();
  const int row = WarpPlace().row;
  if (row >= pair.q.rows) return;
  WarpQueries<Half, D> queries{pair, q, row, row};
  queries.template add_keys<Rows>(k, v, dropped, 0);
  queries.finish(a);
}

// Replaces the scores of a warp's queries from `query` on by weights after dropout, and `dw`, the gradients of those,
// by the gradients of the products q k. Here delta = dy . y is computed as the sum of the weights times their
// gradients.
template <int Keys, class Half>
__device__ void weights_and_slopes(const AttentionBackward<float, Half>& a, const Pair<float, Half>& pair, int query,
                                   uint32_t kept, WarpTile<Keys>& s, WarpTile<Keys>& dw) {
  const ScoreTile<false> tile(pair, query, 0);
  const float keeps = keep_scale(pair);
  LMX_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int i = query + cuda::sum_row(2 * half);
    const float lse = i < pair.q.rows ? a.lse[pair.lse_at(i)] : 0.0f;
    float delta = 0;
    LMX_UNROLL
    for (int e = 2 * half; e < Keys / 2; e += e % 2 ? 3 : 1) {
      float &w = s[e / 4][e % 4], &slope = dw[e / 4][e % 4];
      const bool sees = tile.sees(e);
      w = sees ? fast_exp(pair.scale * w - lse) : 0.0f;
      slope = sees && (kept >> e & 1u) ? slope * keeps : 0.0f;
      delta += w * slope;
    }
    delta = cuda::warp_reduce<kRowLanes>(delta, cuda::AddValues{});
    LMX_UNROLL
    for (int e = 2 * half; e < Keys / 2; e += e % 2 ? 3 : 1) {
      float &w = s[e / 4][e % 4], &slope = dw[e / 4][e % 4];
      slope = score_slope(w, slope, delta, pair.scale);
      w = kept >> e & 1u ? w * keeps : 0.0f;
    }
  }
}

// Stores a warp's tile in rows [row, row + 16), rounded to 16 bits.
template <class Half, int Rows>
__device__ void store(const WarpTile<Rows>& tile, const cuda::SharedMatrix<Half, Rows + kPadding>& to, int row) {
  LMX_UNROLL
  for (int k = 0; k < Rows / 8; k += 2) to.store(row, 8 * k, cuda::left_of<Half>(tile[k], tile[k + 1]));
}

// sum (16, D) = the transpose of columns [column, column + 16) of the weights of `queries` queries, times the same rows
// of b.
template <class Half, int D, int Rows>
__device__ void multiply_transposed(const cuda::SharedMatrix<Half, Rows + kPadding>& weights, int column, int queries,
                                    const HeadMatrix<Half, D>& b, int64_t size, WarpSums<D>& sum) {
  LMX_UNROLL
  for (int e = 0; e < D / 2; ++e) sum[e / 4][e % 4] = 0;
  LMX_UNROLL_BY(1)
  for (int query = 0; query < queries; query += 16)
    add_weighted_rows<Half, D>(weights.left_of_transpose(query, column), b, query, size, sum);
}

// The gradients of one head of one sentence. A warp computes the weights and dq of 16 queries, and then dk and dv of 16
// keys. If k and v are the same variable, the same lane adds dv and dk to an element.
template <class Half, int D, int Rows>
__global__ void __launch_bounds__(kSentenceThreads<Rows>, (kSentenceBlocks<D, Rows>))
    sentence_backward(AttentionBackward<float, Half> a) {
  cuda::wait_for_previous();
  using Memory = SentenceMemory<Half, D, Rows>;
  const Pair<float, Half> pair = pair_of_block(a.in);
  const HeadMatrix<Half, D> q = Memory::operand(0), k = Memory::operand(1), v = Memory::operand(2),
                            dy = Memory::operand(3);
  const auto weights = Memory::weights(4, 0), slopes = Memory::weights(4, 1);
  const DropTile dropped = Memory::dropped(4, 2);
  stage_sentence<Half, D, Rows>(pair.q, q);
  stage_sentence<Half, D, Rows>(pair.k, k);
  stage_sentence<Half, D, Rows>(pair.v, v);
  stage_sentence<Half, D, Rows>(pair.output_rows(a.dy), dy);
  dropped.stage(pair, 0, Rows, 0);
  __syncthreads();
  const int row = WarpPlace().row, queries = static_cast<int>(pair.q.rows);
  const int64_t size = a.in.plan.size;
  WarpSums<D> sum{};
  if (row < queries) {
    WarpTile<Rows> w, ds;
    multiply_rows<Half, D>(q, row, k, 0, size, w);
    multiply_rows<Half, D>(dy, row, v, 0, size, ds);
    weights_and_slopes<Rows>(a, pair, row, kept_elements<false, Rows / 2>(dropped, pair, row, 0), w, ds);
    store<Half, Rows>(w, weights, row);
    store<Half, Rows>(ds, slopes, row);
    add_weighted_rows<Half, D>(ds, k, 0, size, sum);
  }
  __syncthreads();
  Half* const scratch = k.at(row, 0);  // k and v are not read any more
  if (row < queries) put_rows<Half, D>(sum, scratch, gradient_of(a.dq, pair.q, pair.query, pair.head), row);
  if (row >= pair.k.rows) return;
  multiply_transposed<Half, D, Rows>(weights, row, queries, dy, size, sum);
  put_rows<Half, D>(sum, scratch, gradient_of(a.dv, pair.v, pair.key, pair.head), row);
  multiply_transposed<Half, D, Rows>(slopes, row, queries, q, size, sum);
  put_rows<Half, D>(sum, scratch, gradient_of(a.dk, pair.k, pair.key, pair.head), row);
}

// As with_columns(). The second argument of `run` is the number of rows of a block, as its first a type.
template <class Run>
void with_sizes(const AttentionPlan& plan, Run run) {
  with_columns(plan, [&](auto columns) {
    if (std::max(plan.queries, plan.keys) <= 32) return run(columns, std::integral_constant<int, 32>());
    run(columns, std::integral_constant<int, 64>());
  });
}

// Starts a kernel with a block of `threads` threads for each head of each sentence.
template <class Args>
void launch_sentences(Context& ctx, const char* name, int threads, size_t shared, void (*kernel)(Args), const Args& a) {
  constexpr size_t kUsualShared = 48 << 10;  // bytes; a kernel that needs more must say so
  const int64_t blocks = a.in.plan.sequences * a.in.plan.heads;
  if (blocks == 0) return;
  if (shared > kUsualShared) {
    const auto code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (code != cudaSuccess) cuda::launch_failed(ctx, name, cudaGetErrorString(code));
  }
  cuda::launch(ctx, name, {cuda::blocks_of(blocks), static_cast<unsigned>(threads), shared}, kernel, a);
}

}  // namespace

template <class Half>
void forward_sentences(Context& ctx, const AttentionForward<float, Half>& a) {
  with_sizes(a.in.plan, [&](auto columns, auto all) {
    constexpr int D = decltype(columns)::value, Rows = decltype(all)::value;
    const size_t shared = SentenceMemory<Half, D, Rows>::bytes(3, 0);
    launch_sentences(ctx, "attention_forward_sentences", kSentenceThreads<Rows>, shared,
                     sentence_forward<Half, D, Rows>, a);
  });
}

template <class Half>
void backward_sentences(Context& ctx, const AttentionBackward<float, Half>& a) {
  with_sizes(a.in.plan, [&](auto columns, auto all) {
    constexpr int D = decltype(columns)::value, Rows = decltype(all)::value;
    const size_t shared = SentenceMemory<Half, D, Rows>::bytes(4, 2);
    launch_sentences(ctx, "attention_backward_sentences", kSentenceThreads<Rows>, shared,
                     sentence_backward<Half, D, Rows>, a);
  });
}

template void forward_sentences(Context&, const AttentionForward<float, bfloat16>&);
template void forward_sentences(Context&, const AttentionForward<float, float16>&);
template void backward_sentences(Context&, const AttentionBackward<float, bfloat16>&);
template void backward_sentences(Context&, const AttentionBackward<float, float16>&);

}  // namespace lmx::ops
