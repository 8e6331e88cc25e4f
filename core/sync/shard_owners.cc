// Which rank owns which elements of a parameter.
#include <algorithm>
#include <numeric>

#include "lmx/shard_strategy.h"

namespace lmx {

OwnersOf whole_owners(const std::vector<ParameterSpec>& params, std::vector<int64_t>& load) {
  std::vector<const ParameterSpec*> by_size;
  for (const ParameterSpec& p : params) by_size.push_back(&p);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const auto* a, const auto* b) { return a->shape.numel() > b->shape.numel(); });
  OwnersOf all;
  for (const ParameterSpec* p : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += p->shape.numel();
    Owners& begin = all[p->name];
    begin.assign(load.size() + 1, p->shape.numel());
    std::fill_n(begin.begin(), least - load.begin() + 1, 0);
  }
  return all;
}

OwnersOf block_owners(const std::vector<ParameterSpec>& params, std::vector<int64_t>& load) {
  const auto blocks_of = [](const ParameterSpec& p) { return (p.shape.numel() + kSumBlock - 1) / kSumBlock; };
  int64_t total = 0, before = 0;
  for (const ParameterSpec& p : params) total += blocks_of(p);
  std::vector<size_t> by_load(load.size());
  std::iota(by_load.begin(), by_load.end(), size_t{0});
  std::stable_sort(by_load.begin(), by_load.end(), [&](size_t a, size_t b) { return load[a] < load[b]; });
  const auto ranks = static_cast<int64_t>(load.size());
  std::vector<int64_t> own(load.size(), total / ranks);
  for (int64_t i = 0; i < total % ranks; ++i) ++own[by_load[static_cast<size_t>(i)]];
  const std::vector<int64_t> first = RankRows(own).begins();
  OwnersOf all;
  for (const ParameterSpec& p : params) {
    const int64_t n = p.shape.numel();
    Owners& begin = all[p.name];
    for (const int64_t block : first) begin.push_back(std::clamp((block - before) * kSumBlock, int64_t{0}, n));
    for (size_t r = 0; r < load.size(); ++r) load[r] += begin[r + 1] - begin[r];
    before += blocks_of(p);
  }
  return all;
}

}  // namespace lmx
