#include <algorithm>
#include <numeric>

#include "lmx/batcher.h"
#include "lmx/error.h"

namespace lmx {

Batcher::~Batcher() = default;

std::vector<std::string> Batcher::describe() const {
  return {};
}

bool Batcher::separates_documents() const {
  return false;
}

BatchPlan Batcher::plan() const {
  const int64_t length = sequence_length();
  return {length == 0 ? Items::sub_batches : Items::sequences, std::max<int64_t>(1, length)};
}

StepSize Batcher::step_size(int64_t) const {
  return {};
}

std::vector<int64_t> Batch::sequence_lengths() const {
  if (!lengths.empty() || inputs.rank() == 1) return lengths;
  return std::vector<int64_t>(static_cast<size_t>(inputs.dim(0)), inputs.dim(1));
}

namespace {

bool adds_up(const std::vector<int64_t>& lengths, const Tensor& ids) {
  return std::all_of(lengths.begin(), lengths.end(), [](int64_t n) { return n > 0; }) &&
         std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == ids.numel();
}

}  // namespace

std::string Batch::fault(int64_t first, int64_t count, int64_t longest) const {
  if (!inputs.defined() || !targets.defined()) return "no inputs or no targets";
  if (longest == 0 && !source.defined())
    return "no `source`; a sequence_length() of 0 means pairs of sentences, and running text has at least 1";
  const Shape& in = inputs.shape();
  const std::string ids = str("inputs ", in, " and targets ", targets.shape());
  if (targets.shape() != in) return ids + "; both must have the same shape";
  if (longest > 0 && (in.rank() != 2 || in[0] != count || in[1] < 1 || in[1] > longest))
    return str(ids, "; both must be (", count, ", T) with T from 1 to ", longest, ", its sequence_length()");
  if (longest == 0 && in.rank() == 1 && !adds_up(lengths, inputs))
    return str(ids, "; the ", lengths.size(), " lengths must be positive and add up to that");
  const int64_t n = sequences();
  const auto of_each = [n](const auto& list) { return static_cast<int64_t>(list.size()) == n; };
  if (!of_each(slots) || !of_each(fresh))
    return str(slots.size(), " slots and ", fresh.size(), " flags `fresh` for ", n, " sequences");
  for (int64_t i = 0; longest > 0 && i < n; ++i)
    if (const int64_t slot = slots[static_cast<size_t>(i)]; slot != first + i)
      return str("sequence ", i, " of slots ", first, " to ", first + count - 1, " the slot ", slot, ", expected ",
                 first + i);
  if (source.defined() && (!of_each(source_lengths) || !adds_up(source_lengths, source)))
    return str("a source of ", source.numel(), " tokens with ", source_lengths.size(), " lengths for ", n,
               " sequences; the lengths must be positive and add up to the tokens");
  return {};
}

void separate_documents(Batch& batch, int32_t separator) {
  LMX_CHECK(batch.inputs.rank() == 2, "inputs ", batch.inputs.shape());
  const int32_t* inputs = batch.inputs.data<int32_t>();
  const int64_t length = batch.inputs.dim(1);
  batch.documents.clear();
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    const bool begins = i % length == 0 || inputs[i] == separator;
    begins ? batch.documents.push_back(1) : static_cast<void>(++batch.documents.back());
  }
}

std::vector<uint64_t> row_ids(std::span<const int64_t> slots, std::span<const int64_t> lengths) {
  LMX_CHECK(slots.size() == lengths.size(), slots.size(), " slots for ", lengths.size());
  std::vector<uint64_t> ids;
  for (size_t b = 0; b < lengths.size(); ++b)
    for (int64_t t = 0; t < lengths[b]; ++t)
      ids.push_back(static_cast<uint64_t>(slots[b]) << 32 | static_cast<uint64_t>(t));
  return ids;
}

Batch make_batch(const TokenArray& tokens, std::span<const int64_t> starts, int64_t length,
                 const std::shared_ptr<Allocator>& allocator) {
  const auto sequences = static_cast<int64_t>(starts.size());
  Batch batch;
  batch.inputs = Tensor::empty(allocator, {sequences, length}, DType::i32);
  batch.targets = Tensor::empty(allocator, {sequences, length}, DType::i32);
  batch.fresh.assign(starts.size(), 0);
  if (sequences == 0) return batch;
  int32_t* inputs = batch.inputs.data<int32_t>();
  int32_t* targets = batch.targets.data<int32_t>();
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t start = starts[static_cast<size_t>(b)];
    LMX_CHECK(start >= 0 && start + length < tokens.size(), "start ", start, " length ", length, " of ", tokens.size());
    const auto n = static_cast<size_t>(length);
    tokens.copy(start, {inputs + b * length, n});
    tokens.copy(start + 1, {targets + b * length, n});
    batch.slots.push_back(b);
  }
  return batch;
}

int64_t window_steps(const BatcherEnv& env, const std::string& plugin, const std::string& path, int64_t length) {
  const int64_t tokens = env.tokens.size(), steps = std::max<int64_t>(tokens - 1, 0) / length / env.global_batch;
  if (steps > 0) return steps;
  if (length >= tokens) {
    throw UserError(str('[', plugin, "] ", path, ".sequence_length ", length, " is longer than the ", env.split,
                        " split: it holds ", tokens, " tokens, and a sequence takes ", length + 1));
  }
  throw UserError(str('[', plugin, "] the ", env.split, " split is shorter than one batch: ", env.global_batch,
                      " sequences (batch.global) of ", length, " (", path, ".sequence_length) take ",
                      env.global_batch * length + 1, " tokens, it holds ", tokens));
}

EvalPlan::EvalPlan(TokenArray tokens, int64_t sequences, int64_t length, const std::string& split)
    : tokens_(std::move(tokens)), length_(length) {
  LMX_CHECK(sequences > 0 && length > 0, sequences, " x ", length);
  if (tokens_.size() < 2) {
    throw UserError(
        str("[eval] the ", split, " split holds ", tokens_.size(), " tokens; at least 2 are needed to evaluate"));
  }
  slots_ = std::min(sequences, targets());
  part_ = targets() / slots_;
  windows_ = (part_ + length_ - 1) / length_;
  extra_ = (targets() - part_ * slots_ + length_ - 1) / length_;
}

Batch EvalPlan::batch(int64_t index, int64_t first, int64_t count, const std::shared_ptr<Allocator>& allocator) const {
  LMX_CHECK(index >= 0 && index < batches(), index, " of ", batches());
  const int64_t last = std::min(first + count, slots_);
  std::vector<int64_t> starts, slots;
  int64_t length = 0;
  if (index < windows_) {
    const int64_t offset = index * length_;
    length = std::min(length_, part_ - offset);
    for (int64_t slot = first; slot < last; ++slot) {
      starts.push_back(slot * part_ + offset);
      slots.push_back(slot);
    }
  } else {
    const int64_t start = slots_ * part_ + (index - windows_) * length_;
    length = std::min(length_, targets() - start);
    if (first < slots_ && last == slots_) {
      starts.push_back(start);
      slots.push_back(slots_ - 1);
    }
  }
  Batch batch = make_batch(tokens_, starts, length, allocator);
  batch.slots = std::move(slots);
  if (index == 0) std::fill(batch.fresh.begin(), batch.fresh.end(), uint8_t{1});
  return batch;
}

}  // namespace lmx
