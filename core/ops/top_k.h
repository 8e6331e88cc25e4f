// The likeliest entries of a row of logits.
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
  std::vector<Entry> entries;  // by falling logit, equal ones by id; at most k
  double log_sum_exp = 0;      // of the whole row; no number where a logit is NaN or +Inf, or all are -Inf
};

// The k largest of x (n), those of the ids `without` left out. -Inf and NaN are never among them.
TopRow top_k(const float* x, int64_t n, int64_t k, std::span<const int32_t> without);

}  // namespace lmx::ops
