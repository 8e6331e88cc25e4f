// For models that write texts and translations one position at a time (Decoding of lmx/model.h): products of few rows,
// and attention to the keys and values of earlier positions. None of these functions records gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx {

// `ctx` for inference: no gradients are recorded, and there is no dropout.
LMX_API Context silent(const Context& ctx);

// Whether products of `rows` rows by the same weights, step after step, are faster if the weights are packed: few rows
// on the CPU.
LMX_API bool packs(const Context& ctx, int64_t rows);
// linear() for x (N, K) by a packed copy of w, which is cached until w changes.
LMX_API Var linear_packed(Context& ctx, const Var& x, const Var& w, const Var& b);

// Attention of the next word of some rows to keys wherever they are stored. The first heads size columns of row r of q
// (rows, columns) are its query. It attends to the keys begin[r] to begin[r + 1]: addresses, in the memory of the
// context's device, of heads size elements of q's type, which the values of the key follow. -> (rows, heads size)
LMX_API Tensor attend_to_keys(Context& ctx, const Tensor& q, int64_t heads, int64_t size, std::vector<const void*> keys,
                              std::vector<int64_t> begin);

// The keys and values of all positions of some texts, for each layer of a model. The texts grow by one position a step;
// the first step may have any number. Memory: rows * positions * 2 kv_heads size values for each layer, and up to twice
// as much.
class LMX_API TextCache {
 public:
  struct Sizes {
    int64_t layers, heads, kv_heads, size;  // kv_heads: of keys and values, a divisor of `heads`
  };
  // `type`: of the values, f32 or f64.
  TextCache(const Context& ctx, const Sizes& sizes, int64_t rows, DType type);
  int64_t rows() const { return rows_; }
  // The positions in their texts of a step's tokens: `ids` (rows n), the n of a row one after the other.
  std::vector<int64_t> positions(std::span<const int32_t> ids) const;
  // Stores the keys and values of the step's positions in `layer`, and attends with each query to all positions up to
  // its own: qkv (rows n, (heads + 2 kv_heads) size) -> (rows n, heads size). Each step calls it once for every layer.
  // REQUIRES: n = 1, or this is the first step.
  Tensor attend(Context& ctx, int64_t layer, const Tensor& qkv);
  // The features of each row's last position: (rows n, D) -> (rows, D).
  Tensor last(Context& ctx, const Tensor& features) const;
  // Decoding::select().
  void select(Context& ctx, std::span<const int64_t> from);

 private:
  // Both (rows * kv_heads * capacity, size): for each row and head, memory for `capacity` positions, in the layout of
  // ops::AttendText. A step reads both from front to back; this is its cost besides the weights.
  struct Kept {
    Tensor keys, values;
    int64_t length = 0, capacity = 0;
  };
  // Doubles the memory of a layer until it is enough for `positions`.
  void grow(const Context& ctx, Kept& kept, int64_t positions) const;
  int64_t steps(int64_t positions) const;  // n of a step that has this many positions
  Tensor attend_first(Context& ctx, Kept& kept, const Tensor& qkv, int64_t n) const;
  Tensor attend_next(Context& ctx, Kept& kept, const Tensor& qkv) const;

  Sizes sizes_;
  int64_t rows_;
  DType type_;
  std::vector<Kept> layers_;
};

}  // namespace lmx
