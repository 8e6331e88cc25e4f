// The most probable entries of rows of logits. Beam search compares and extends its hypotheses on the host, so only
// these entries leave a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/kernels.h"

namespace lmx::ops {

struct Entry {
  float logit;
  int32_t id;
};

struct TopRow {
  std::vector<Entry> entries;  // by descending logit, equal ones by id; at most k
  double log_sum_exp = 0;      // of the whole row; not a number if a logit is NaN or +Inf, or if all are -Inf
  float wanted = 0;            // top_rows(): the logit of the id `wanted`
};

// The k largest of x (n) in host memory, except the ids in `without`. -Inf and NaN are never among them.
TopRow top_k(const float* x, int64_t n, int64_t k, std::span<const int32_t> without);

// The same of each row of `logits` (rows, n) f32 on ctx.device, and the logit of the id `wanted`.
std::vector<TopRow> top_rows(Context& ctx, const Tensor& logits, int64_t k, const std::vector<int32_t>& without,
                             int32_t wanted);

// The kernel of top_rows() on a device. On the CPU it is top_k() for each row.
template <class T>
struct TopRows {
  static constexpr const char* kName = "top_rows";
  const T* x;  // (rows, n)
  int64_t rows, n, k;
  const int32_t* without;
  int64_t left_out;  // ids in `without`
  int32_t wanted;
  double* found;  // (rows, width()) log_sum_exp, wanted, and k pairs of logit and id; id -1: the row has no more
  LMX_HD int64_t width() const { return 2 + 2 * k; }
};

}  // namespace lmx::ops
