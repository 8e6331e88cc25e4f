// Counts of the n-grams of one sentence.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lmx::data {

struct NGram {
  static constexpr size_t kLongest = 6;
  std::array<int32_t, kLongest> ids{};  // padded with zeros
  int64_t count = 0;
};
using NGrams = std::vector<NGram>;  // in ascending order of ids, each once

// Returns the n-grams of `ids` with n tokens each. REQUIRES: 1 <= n <= kLongest.
NGrams count_ngrams(std::span<const int32_t> ids, size_t n);
// Returns, for each n-gram in either, the larger count.
NGrams larger_counts(const NGrams& a, const NGrams& b);
// total: the sum of counts; shared: the sum of the smaller counts of n-grams in both.
int64_t total(const NGrams& a);
int64_t shared(const NGrams& a, const NGrams& b);

}  // namespace lmx::data
