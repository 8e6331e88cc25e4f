#include "app/scores/ngrams.h"

#include <algorithm>

#include "lmx/error.h"

namespace lmx::data {
namespace {

// Calls visit(ids, count in a, count in b) for each n-gram in either.
template <class Visit>
void merge(const NGrams& a, const NGrams& b, const Visit& visit) {
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() || j != b.end()) {
    if (j == b.end() || (i != a.end() && i->ids < j->ids)) {
      visit(i->ids, i->count, int64_t{0});
      ++i;
    } else if (i == a.end() || j->ids < i->ids) {
      visit(j->ids, int64_t{0}, j->count);
      ++j;
    } else {
      visit(i->ids, i->count, j->count);
      ++i, ++j;
    }
  }
}

}  // namespace

NGrams count_ngrams(std::span<const int32_t> ids, size_t n) {
  LMX_CHECK(n >= 1 && n <= NGram::kLongest, n);
  NGrams all(ids.size() >= n ? ids.size() - n + 1 : 0);
  for (size_t i = 0; i < all.size(); ++i) {
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(i), n, all[i].ids.begin());
    all[i].count = 1;
  }
  std::sort(all.begin(), all.end(), [](const NGram& a, const NGram& b) { return a.ids < b.ids; });
  NGrams counted;
  for (const NGram& g : all) {
    if (!counted.empty() && counted.back().ids == g.ids) {
      ++counted.back().count;
    } else {
      counted.push_back(g);
    }
  }
  return counted;
}

NGrams larger_counts(const NGrams& a, const NGrams& b) {
  NGrams out;
  merge(a, b, [&](const auto& ids, int64_t x, int64_t y) { out.push_back({ids, std::max(x, y)}); });
  return out;
}

int64_t total(const NGrams& a) {
  int64_t sum = 0;
  for (const NGram& g : a) sum += g.count;
  return sum;
}

int64_t shared(const NGrams& a, const NGrams& b) {
  int64_t sum = 0;
  merge(a, b, [&](const auto&, int64_t x, int64_t y) { sum += std::min(x, y); });
  return sum;
}

}  // namespace lmx::data
