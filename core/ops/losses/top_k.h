// The most probable entries of a row of logits in host memory. A function of the host: beam search compares and extends
// its hypotheses there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lmx::ops {

struct Entry {
  float logit;
  int32_t id;
};

struct TopRow {
  std::vector<Entry> entries;  // by descending logit, equal ones by id; at most k
  double log_sum_exp = 0;      // of the whole row; not a number if a logit is NaN or +Inf, or if all are -Inf
};

// The k largest of x (n), except the ids in `without`. -Inf and NaN are never among them.
TopRow top_k(const float* x, int64_t n, int64_t k, std::span<const int32_t> without);

}  // namespace lmx::ops
