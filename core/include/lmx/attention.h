// Multi-head attention over packed sequences, and rotary position embeddings of its queries and keys.
//
// The rows of all sequences are stored one after the other without padding; `Segments` holds where each one begins.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/ops.h"

namespace lmx {

// Returns the position of each row in its sequence, counted from 0: (rows).
LMX_API std::vector<int64_t> positions_of(const Segments& rows);

struct AttentionOptions {
  int64_t heads = 1;     // heads of the queries
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of `heads`; 0: equal to `heads`
  bool causal = false;   // query i sees the keys 0 .. i of its sequence; queries and keys are the same rows
  // Added to the scaled scores before the softmax; undefined: nothing is added. -Inf hides a key. A query that sees no
  // key has the result 0. Shapes: (Q, K) for all sequences and heads, (heads, Q, K) for all sequences, or (B, heads or
  // 1, Q, K). Q and K are at least the longest sequence's queries and keys; element (i, j) is for query i and key j of
  // a sequence.
  Var bias = {};
  // In training, an attention weight is dropped with this probability. The random number depends on (key,
  // row_ids[query], head, key's position).
  double dropout = 0;
  RandomKey key = {};
  std::span<const uint64_t> row_ids = {};  // (N) identifies each row of queries; read only if weights are dropped
};

struct AttentionInputs {
  Var q;     // (N, heads size)
  Var k, v;  // (M, kv_heads size)
  Segments queries, keys;
};
// softmax(q k^T / sqrt(size) + bias) v for each head of each sequence (Vaswani et al. 2017, section 3.2). Query head h
// uses head h / (heads / kv_heads) of keys and values (grouped queries, Ainslie et al. 2023).
//   -> (N, heads size)   grads: q, k, v, bias
LMX_API Var attention(Context& ctx, const AttentionInputs& x, const AttentionOptions& options);
// The same for operands that one product computed side by side, as columns of one matrix:
//   qkv (N, (heads + 2 kv_heads) size) -> (N, heads size), each sequence attending to itself
LMX_API Var attention(Context& ctx, const Var& qkv, const Segments& rows, const AttentionOptions& options);
//   q (N, heads size), kv (M, 2 kv_heads size) -> (N, heads size)
LMX_API Var attention(Context& ctx, const Var& q, const Var& kv, const Segments& queries, const Segments& keys,
                      const AttentionOptions& options);

struct RopeOptions {
  int64_t heads = 1;
  double base = 10000;       // of the angles: the angle is position * base^(-2 i / size) for pair i of a head
  bool interleaved = false;  // pairs are elements (2 i, 2 i + 1), as in the paper; else (i, i + size / 2), as in Llama
};
// Rotary position embedding (Su et al. 2021, section 3.2.2): each pair of a head's elements is rotated by its angle.
//   x (N, heads size), positions (N) -> (N, heads size)   grads: x
LMX_API Var rope(Context& ctx, const Var& x, std::span<const int64_t> positions, const RopeOptions& options);

}  // namespace lmx
