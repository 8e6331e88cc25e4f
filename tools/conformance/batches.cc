#include "conformance/batches.h"

namespace lmx_cli::check {

using namespace lmx;

namespace {

std::vector<int32_t> words(uint64_t seed, int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(2 + RandomKey(seed).below(static_cast<uint64_t>(i), kVocabulary - 2)));
  return ids;
}

Tensor tensor_of(const std::vector<int32_t>& ids, Shape shape) {
  return Tensor::from<int32_t>(Allocator::cpu(), shape, ids);
}

Batch rows_of(int64_t rows) {
  Batch b;
  for (int64_t i = 0; i < rows; ++i) b.slots.push_back(i);
  b.fresh.assign(static_cast<size_t>(rows), 1);
  return b;
}

}  // namespace

Batch text_batch(int64_t first, int64_t last, int64_t begin, int64_t end) {
  std::vector<int32_t> in, out;
  for (int64_t s = first; s < last; ++s) {
    const std::vector<int32_t> line = words(40 + static_cast<uint64_t>(s), kLength + 1);
    in.insert(in.end(), line.begin() + begin, line.begin() + end);
    out.insert(out.end(), line.begin() + begin + 1, line.begin() + end + 1);
  }
  Batch b = rows_of(last - first);
  for (int64_t& slot : b.slots) slot += first;
  b.inputs = tensor_of(in, {last - first, end - begin});
  b.targets = tensor_of(out, {last - first, end - begin});
  return b;
}

Batch pair_batch(int64_t first, int64_t last) {
  std::vector<int32_t> source, in, out;
  Batch b = rows_of(last - first);
  for (int64_t s = first; s < last; ++s) {
    b.slots[static_cast<size_t>(s - first)] = s;
    std::vector<int32_t> from = words(60 + static_cast<uint64_t>(s), 3 + 2 * s),
                         to = words(80 + static_cast<uint64_t>(s), 2 + 2 * s);
    from.push_back(Vocabulary::kEos);
    source.insert(source.end(), from.begin(), from.end());
    in.push_back(Vocabulary::kEos);
    in.insert(in.end(), to.begin(), to.end());
    out.insert(out.end(), to.begin(), to.end());
    out.push_back(Vocabulary::kEos);
    b.source_lengths.push_back(static_cast<int64_t>(from.size()));
    b.lengths.push_back(static_cast<int64_t>(to.size()) + 1);
  }
  b.inputs = tensor_of(in, {static_cast<int64_t>(in.size())});
  b.targets = tensor_of(out, {static_cast<int64_t>(out.size())});
  b.source = tensor_of(source, {static_cast<int64_t>(source.size())});
  return b;
}

}  // namespace lmx_cli::check
