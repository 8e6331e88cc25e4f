// Functions on f32 vectors, of which strategies that compress gradients are composed. They run on the CPU and on CUDA,
// and their results do not depend on the number of threads. Ranks are added in rank order from +0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/comm.h"
#include "lmx/context.h"

namespace lmx {

class Codec;

// Some elements of a vector.
struct Entries {
  Tensor ids;     // i32 (k), each once
  Tensor values;  // f32 (k)
};

// How many elements take_largest() takes of a vector of n.
LMX_API int64_t largest_count(int64_t n, int64_t k, int64_t chunk = 0);
// Takes the k elements of v (n) with the largest absolute values: returns them, ids ascending, and sets them to 0 in v.
// With a `chunk`, k of each `chunk` successive elements; the last chunk may be shorter. If absolute values are
// equal, the elements with lower ids are taken. NaN counts as larger than infinity. REQUIRES: 1 <= k; with a chunk
// k <= chunk, else k <= n.
LMX_API Entries take_largest(Context& ctx, Tensor v, int64_t k, int64_t chunk = 0);
// Takes k elements of v (n) that `key` chooses; each set of k ids has the same probability. Collective: all ranks pass
// the same key and get the same ids, in no order. If an element of v is not finite, also one that is not chosen, the
// values are NaN, so that all ranks see an overflow in the step in which it happens. REQUIRES: k <= n.
LMX_API Entries take_random(Context& ctx, Tensor v, int64_t k, RandomKey key);
// (size): the entries at their ids, +0 elsewhere.
LMX_API Tensor spread_entries(Context& ctx, const Entries& entries, int64_t size);
// (size): the sum over ranks of their entries. Collective: all ranks have the same number of entries, k. Each rank
// sends 8 k bytes to each other rank in two collectives. The result is shared and must not be written to.
LMX_API Tensor gather_entries(Context& ctx, const Entries& own, int64_t size, const std::string& group);

// Entries that take_largest() has taken with this `k` and `chunk` of a vector (size).
struct ChunkGather {
  int64_t size, k, chunk = 0;
  const Codec* codec = nullptr;  // of the values; null: f32
  bool means = false;            // false: sums over ranks; true: at each id the means over the ranks that have it
};
// As gather_entries(), but a rank sends ids within their chunk, in as few bits as these need, and values through the
// codec. own.values become the decoded values, which the result contains.
LMX_API Tensor gather_chunks(Context& ctx, const ChunkGather& how, Entries& own, const std::string& group);

// factor * x, in x's shape, as a new tensor.
LMX_API Tensor scaled(Context& ctx, const Tensor& x, float factor);
// v += factor * x, of equal sizes.
LMX_API void add_scaled(Context& ctx, Tensor v, float factor, const Tensor& x);
// op(a) (M, K) op(b) (K, N) as a new tensor (M, N); op transposes if its flag is set (gemm() of lmx/matmul.h).
LMX_API Tensor product(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b);
// Makes the columns of m (rows, columns) orthonormal from left to right by the modified Gram-Schmidt method, with sums
// in double. A column that depends on those before it, up to rounding, is replaced by a unit vector that is made
// orthogonal to them: the one of which they contain least. REQUIRES: columns <= rows.
LMX_API void orthonormalise(Context& ctx, Tensor m);

// sign(x), in x's shape: 1 or -1; 0 stays, and the result is NaN where x is not finite.
LMX_API Tensor signs(Context& ctx, const Tensor& x);
// The majority vote of ranks on the sign of each element of v (n), 1 or -1 (Bernstein et al. 2019, signSGD with
// majority vote). An element that is not negative votes for +, a rank with zeros only does not vote, and a tie is +.
// The result is NaN if an element of any rank is not finite. Collective: each part of the signs is sent to the rank
// that counts its votes, and the results are gathered. The result is shared and must not be written to.
LMX_API Tensor vote_signs(Context& ctx, const Tensor& v, const std::string& group);

// The lowest `bits` bits (1 to 8) of each code, u8 (n), without gaps, the first code in the lowest bits of the first
// byte: u8 (packed_bytes(n, bits)).
LMX_API int64_t packed_bytes(int64_t n, int bits);
LMX_API Tensor pack_bits(Context& ctx, const Tensor& codes, int bits);
LMX_API Tensor unpack_bits(Context& ctx, const Tensor& packed, int bits, int64_t n);

// Stochastic rounding of a vector to few levels (Alistarh et al. 2017, QSGD, section 3.1). Each bucket of `bucket`
// successive elements has a norm N, and an element v becomes sign(v) N l / s with s = 2^(bits - 1) - 1 levels. With
// x = s |v| / N, l is floor(x) + 1 with the probability x - floor(x), otherwise floor(x), so the expected value is v.
struct QuantiserConfig {
  int64_t bits = 4;      // 2 to 8: one for the sign
  int64_t bucket = 512;  // elements
  bool largest = false;  // N is the largest absolute value of the bucket; otherwise its Euclidean norm
};
struct Quantised {
  Tensor norms;  // f32 (buckets)
  Tensor codes;  // u8, packed
};
LMX_API Quantised quantise(Context& ctx, const QuantiserConfig& config, const Tensor& v, RandomKey key);
// v += factor * the decoded values.
LMX_API void add_quantised(Context& ctx, const QuantiserConfig& config, const Quantised& q, float factor, Tensor v);
// (size): the sum over ranks of the decoded values. Collective; each rank sends norms and codes to each other rank. The
// result is shared and must not be written to.
LMX_API Tensor gather_quantised(Context& ctx, const QuantiserConfig& config, const Quantised& own, int64_t size,
                                const std::string& group);

// The offset o and the scale s of a block of elements.
//
//   largest       o is 0 and s the largest absolute value, which is stored; the decoded value is s times the level
//   mean_square   the same with the root of the mean square of the elements
//   deviation     o is the mean and s the standard deviation; the decoded value is the mean of the block's elements
//   with
//                 the same level, which is stored for each level
enum class LevelScale : uint8_t { largest, mean_square, deviation };
// The nearest of a few levels. A vector is divided into blocks of successive elements, and an element v of a block gets
// the number of the level that is nearest to (v - o) / s, of two equally near ones the lower.
struct LevelCoder {
  std::vector<float> levels;  // ascending, 2 to 256 of them
  int64_t block = 0;          // elements; 0: the whole vector
  LevelScale scale = LevelScale::largest;
};
// The size of n encoded values: the f32 numbers of all blocks, then the numbers of the levels without gaps.
LMX_API int64_t level_bytes(const LevelCoder& coder, int64_t n);
// v: f32 (n). encoded: u8 (level_bytes(n)), aligned for f32. A block with a value that is not finite becomes NaN or
// infinite where that value is.
LMX_API void encode_levels(Context& ctx, const LevelCoder& coder, const Tensor& v, Tensor encoded);
LMX_API void decode_levels(Context& ctx, const LevelCoder& coder, const Tensor& encoded, Tensor v);

}  // namespace lmx
