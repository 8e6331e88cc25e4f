#include "train/loop/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "backend/cuda.h"
#include "base/clock.h"
#include "base/text.h"
#include "data/passes.h"
#include "lmx/pair_batches.h"
#include "tensor/caching_allocator.h"
#include "train/loop/step.h"

namespace lmx {
namespace {

// The sentences of a rank's items in a step, which its passes divide.
void add_items(const PairBatcher& batcher, int64_t step, int64_t first, int64_t end,
               std::vector<std::vector<int64_t>>& items) {
  items.clear();
  for (int64_t item = first; item < end; ++item) {
    const int64_t g = batcher.group_of(step, item);
    if (g < 0) continue;
    const std::span<const int64_t> sentences = batcher.groups().group(g);
    items.emplace_back(sentences.begin(), sentences.end());
  }
}

// The passes of these items: the items themselves, or all their sentences in passes of at most `tokens` target tokens.
std::vector<PairShape> passes_of(const PairArray& pairs, const std::vector<std::vector<int64_t>>& items,
                                 int64_t tokens) {
  std::vector<PairShape> shapes;
  if (tokens == 0) {
    for (const std::vector<int64_t>& item : items) shapes.push_back(shape_of(pairs, item));
    return shapes;
  }
  std::vector<int64_t> sentences, lengths;
  for (const std::vector<int64_t>& item : items) sentences.insert(sentences.end(), item.begin(), item.end());
  for (const int64_t i : sentences) lengths.push_back(static_cast<int64_t>(pairs.target(i).size()));
  size_t begin = 0;
  for (const size_t end : pass_ends(lengths, tokens)) {
    shapes.push_back(shape_of(pairs, std::span(sentences).subspan(begin, end - begin)));
    begin = end;
  }
  return shapes;
}

std::string text_of(const PairShape& shape) {
  return str(count_text(shape.sentences), shape.sentences == 1 ? " sentence" : " sentences", " with ",
             count_text(shape.source), " source and ", count_text(shape.target), " target tokens, the longest of ",
             shape.longest_source, " and ", shape.longest_target);
}

LargestBatch largest_of_pairs(const Session& s, const PairBatcher& batcher, int64_t from, int64_t end) {
  LargestBatch most{.step = from, .tokens = 0, .shape = "no sentence"};
  std::vector<std::vector<int64_t>> items;
  for (int64_t step = from; step < end; ++step) {
    for (int rank = 0; rank < s.comm.size(); ++rank) {
      const int64_t global = s.recipe.batch.global;
      add_items(batcher, step, chunk_begin(global, rank, s.comm.size()), chunk_begin(global, rank + 1, s.comm.size()),
                items);
      for (const PairShape& shape : passes_of(s.data.train_pairs, items, s.recipe.batch.micro_tokens))
        if (shape.tokens() > most.tokens) most = {step, shape.tokens(), text_of(shape)};
    }
  }
  return most;
}

LargestBatch largest_by_size(const Session& s, int64_t from, int64_t end) {
  LargestBatch most{.step = from, .tokens = -1, .shape = ""};
  for (int64_t step = from; step < end; ++step) {
    const StepSize size = s.size_of_step(step);
    if (size.tokens <= most.tokens) continue;
    const int64_t length = size.tokens / std::max<int64_t>(1, size.sequences);
    const int64_t share = (s.recipe.batch.global + s.comm.size() - 1) / s.comm.size();
    const int64_t pass = s.recipe.batch.micro > 0 ? std::min(s.recipe.batch.micro, share) : share;
    const std::string what = s.sub_batches() ? str(count_text(size.tokens), " target tokens over all ranks")
                                             : str(count_text(pass), pass == 1 ? " sequence" : " sequences", " of ",
                                                   count_text(length), " ", s.data.unit, "s a pass");
    most = {step, size.tokens, what};
    if (s.batcher.step_size(step).tokens == 0) break;  // all steps have the same size
  }
  return most;
}

// The passes of the step. Gradients are not exchanged, as in the step of a worker, which is the same computation.
double compute(Session& s, int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  Position at;
  at.step = step;
  RunState run(s, "", at, 0);
  StepRunner steps(run, StepOf::worker);
  const std::vector<Batch> share = steps.draw(step);
  const StepPlan plan = steps.begin(share, step);
  StepLoss own = steps.forward_backward(share, plan);
  steps.read_losses(own);
  if (s.ctx.device.kind == Device::Kind::cuda) cuda_device(s.ctx.device).fence()->wait();
  return seconds_since(begin);
}

// Keeps the parts of a session that a step changes besides its gradients, and restores them at its end.
class Kept {
 public:
  explicit Kept(Session& s) : s_(s), ctx_(s.ctx), sync_(make_sync(s.recipe, s.network, s.comm)) {
    std::swap(s_.sync, sync_);
    s_.ctx.tracer = nullptr;
  }
  ~Kept() {
    std::swap(s_.sync, sync_);
    s_.ctx = ctx_;
    s_.params.clear_gradients();
    if (s_.carried) s_.carried->discard();
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  Session& s_;
  Context ctx_;
  std::unique_ptr<Exchanger> sync_;
};

// Collective: the numbers and the first message of all ranks.
void gather(Session& s, double seconds, Rehearsal& result) {
  const MemoryStats stats = s.memory();
  std::vector<double> own{seconds, static_cast<double>(stats.total_peak)};
  for (const int64_t peak : stats.peak) own.push_back(static_cast<double>(peak));
  const std::vector<double> all = s.comm.gather_numbers(own, "control");
  for (size_t i = 0; i < all.size(); i += own.size()) {
    result.seconds = std::max(result.seconds, all[i]);
    if (static_cast<int64_t>(all[i + 1]) <= result.memory.total_peak) continue;
    result.memory.total_peak = static_cast<int64_t>(all[i + 1]);
    for (size_t c = 0; c < result.memory.peak.size(); ++c) result.memory.peak[c] = static_cast<int64_t>(all[i + 2 + c]);
  }
  for (const std::string& text : s.comm.gather_texts(result.failure, "control")) {
    if (text.empty()) continue;
    result.failure = text;
    break;
  }
}

}  // namespace

LargestBatch largest_batch(const Session& s, int64_t from) {
  const int64_t last = std::max(s.shared->total_steps, from + 1);
  const int64_t end = std::min(last, from + std::max<int64_t>(1, s.batcher.steps_per_epoch()));
  return s.comm.once<LargestBatch>([&] {
    const auto* const pairs = dynamic_cast<const PairBatcher*>(&s.batcher);
    return pairs ? largest_of_pairs(s, *pairs, from, end) : largest_by_size(s, from, end);
  });
}

Rehearsal rehearse(Session& s, const LargestBatch& batch, int64_t cap) {
  Rehearsal result;
  result.batch = batch;
  double seconds = 0;
  {
    const MemoryCap limit(s.ctx.allocator, cap);
    s.comm.barrier();  // the ranks of a process share the pool with the cap
    const Kept kept(s);
    try {
      seconds = compute(s, batch.step);
    } catch (const OutOfMemory& e) {
      result.failure = e.what();
    } catch (const std::bad_alloc&) {
      result.failure = "[memory] the host cannot allocate more memory";
    }
    s.comm.barrier();
  }
  gather(s, seconds, result);
  if (!result.failure.empty()) {  // the peak and the cached blocks belong to no step of the run
    s.ctx.allocator->trim();
    s.ctx.allocator->reset_peak();
  }
  return result;
}

}  // namespace lmx
