#include "data/passes.h"

#include <algorithm>

namespace lmx {
namespace {

// A sentence of a sub-batch, and where its tokens begin in the tensors of the sub-batch.
struct Sentence {
  const Batch* batch;
  size_t number;
  int64_t source_begin, target_begin;
  int64_t source() const { return batch->source_lengths[number]; }
  int64_t target() const { return batch->lengths[number]; }
};

std::vector<Sentence> sentences_of(std::span<const Batch> items) {
  std::vector<Sentence> all;
  for (const Batch& item : items) {
    int64_t source = 0, target = 0;
    for (size_t i = 0; i < item.lengths.size(); ++i) {
      all.push_back({&item, i, source, target});
      source += item.source_lengths[i];
      target += item.lengths[i];
    }
  }
  return all;
}

int32_t* append(int32_t* to, const Tensor& from, int64_t begin, int64_t count) {
  return std::copy_n(from.data<int32_t>() + begin, count, to);
}

Batch joined(std::span<const Sentence> sentences, const std::shared_ptr<Allocator>& allocator) {
  Batch batch;
  int64_t source = 0, target = 0;
  for (const Sentence& s : sentences) {
    batch.slots.push_back(s.batch->slots[s.number]);
    batch.fresh.push_back(s.batch->fresh[s.number]);
    batch.lengths.push_back(s.target());
    batch.source_lengths.push_back(s.source());
    source += s.source();
    target += s.target();
  }
  batch.inputs = Tensor::empty(allocator, {target}, DType::i32);
  batch.targets = Tensor::empty(allocator, {target}, DType::i32);
  batch.source = Tensor::empty(allocator, {source}, DType::i32);
  int32_t *inputs = batch.inputs.data<int32_t>(), *targets = batch.targets.data<int32_t>(),
          *words = batch.source.data<int32_t>();
  for (const Sentence& s : sentences) {
    inputs = append(inputs, s.batch->inputs, s.target_begin, s.target());
    targets = append(targets, s.batch->targets, s.target_begin, s.target());
    words = append(words, s.batch->source, s.source_begin, s.source());
  }
  return batch;
}

}  // namespace

std::vector<size_t> pass_ends(std::span<const int64_t> target_lengths, int64_t tokens) {
  std::vector<size_t> ends;
  int64_t sum = 0;
  for (size_t i = 0; i < target_lengths.size(); ++i) {
    if (sum > 0 && sum + target_lengths[i] > tokens) {
      ends.push_back(i);
      sum = 0;
    }
    sum += target_lengths[i];
  }
  if (!target_lengths.empty()) ends.push_back(target_lengths.size());
  return ends;
}

std::vector<Batch> in_passes(std::span<const Batch> items, int64_t tokens,
                             const std::shared_ptr<Allocator>& allocator) {
  const std::vector<Sentence> sentences = sentences_of(items);
  std::vector<int64_t> lengths;
  for (const Sentence& s : sentences) lengths.push_back(s.target());
  std::vector<Batch> passes;
  size_t begin = 0;
  for (const size_t end : pass_ends(lengths, tokens)) {
    passes.push_back(joined(std::span(sentences).subspan(begin, end - begin), allocator));
    begin = end;
  }
  return passes;
}

}  // namespace lmx
