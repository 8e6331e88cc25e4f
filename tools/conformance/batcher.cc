// Checks of batchers: the batch of a step is a pure function of seed and step, for each part that a rank requests.
#include <algorithm>
#include <set>

#include "conformance/conformance.h"
#include "lmx/batcher.h"

namespace lmx::app::conformance {
namespace {

constexpr int64_t kGlobal = 6, kWords = 97, kTokens = 20'000, kSentences = 600;

// Returns sentences of 3 to 14 words, each followed by </s>.
TokenArray sentences(uint64_t seed) {
  const RandomKey key(seed);
  std::vector<int32_t> ids;
  for (uint64_t s = 0; s < kSentences; ++s) {
    const uint64_t words = 3 + key.below(s, 12);
    for (uint64_t w = 0; w < words; ++w)
      ids.push_back(static_cast<int32_t>(2 + key.fold(s).below(w, static_cast<uint64_t>(kWords) - 2)));
    ids.push_back(Vocabulary::kEos);
  }
  return TokenArray::of(std::move(ids));
}

TokenArray running_text() {
  const RandomKey key(3);
  std::vector<int32_t> ids(static_cast<size_t>(kTokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(key.below(i, static_cast<uint64_t>(kWords)));
  return TokenArray::of(std::move(ids));
}

BatcherEnv environment(TokenArray tokens, uint64_t seed = 5) {
  return {std::move(tokens), kGlobal, RandomKey(seed), Allocator::cpu(), "train"};
}

std::unique_ptr<Batcher> make(const Subject& s, bool pairs, uint64_t seed = 5) {
  BatcherEnv env = environment(pairs ? sentences(2) : running_text(), seed);
  if (pairs) {
    env.pairs = PairArray(sentences(1), sentences(2));
    const auto work = [](int64_t n, int64_t source, int64_t target) {
      return 1e-6 * static_cast<double>(n * (source + target));
    };
    env.cost = work;
    env.macs = work;
  }
  return create<BatcherFactory>(s.plugin, s.config, "batcher", env);
}

std::vector<int32_t> ids_of(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.values<int32_t>().begin(), t.values<int32_t>().end()};
}

bool same(const Batch& a, const Batch& b) {
  return ids_of(a.inputs) == ids_of(b.inputs) && ids_of(a.targets) == ids_of(b.targets) && a.slots == b.slots &&
         a.fresh == b.fresh && a.lengths == b.lengths && ids_of(a.source) == ids_of(b.source) &&
         a.source_lengths == b.source_lengths;
}

class BatcherCheck {
 public:
  BatcherCheck(const Subject& s, bool pairs) : s_(s), pairs_(pairs), batcher_(make(s, pairs)) {
    const int64_t epoch = std::max<int64_t>(batcher_->steps_per_epoch(), 1);
    for (const int64_t step : {int64_t{0}, int64_t{1}, epoch - 1, epoch, 2 * epoch + 1}) steps_.insert(step);
  }

  void run(Report& report) {
    report.run("epoch", [&] { return epoch(); });
    report.run("shapes", [&] { return shapes(); });
    report.run("steps", [&] { return steps(); });
    if (!pairs_) report.run("targets", [&] { return targets(); });
    report.run("determinism", [&] { return determinism(); });
    report.run("seed", [&] { return seed(); });
    report.run("slices", [&] { return slices(); });
    report.run("step size", [&] { return step_size(); });
    report.run("state", [&] { return state(); });
    if (!pairs_) report.run("short text", [&] { return short_text(); });
  }

 private:
  Batch part(int64_t step, int64_t first, int64_t count) const {
    Batch b = batcher_->batch(step, first, count);
    if (const std::string fault = b.fault(first, count, batcher_->sequence_length()); !fault.empty())
      fail("step ", step, ": batch() gives ", fault);
    return b;
  }
  // Returns the global batch in the parts that ranks request.
  std::vector<Batch> whole(int64_t step) const {
    std::vector<Batch> parts;
    if (!pairs_) return {part(step, 0, kGlobal)};
    for (int64_t i = 0; i < kGlobal; ++i) parts.push_back(part(step, i, 1));
    return parts;
  }

  std::string epoch() const {
    if (batcher_->steps_per_epoch() < 1)
      fail("steps_per_epoch() is ", batcher_->steps_per_epoch(), ", expected at least 1");
    return str(batcher_->steps_per_epoch(), " steps of ", kGlobal, pairs_ ? " sub-batches" : " sequences");
  }

  std::string shapes() const {
    int64_t tokens = 0;
    for (const int64_t step : steps_) {
      for (const Batch& b : whole(step)) {
        for (const Tensor* t : {&b.inputs, &b.targets, &b.source})
          for (const int32_t id : ids_of(*t))
            if (id < 0 || id >= kWords) fail("step ", step, ": the id ", id, " is no word of the split");
        tokens += b.tokens();
      }
    }
    return str(tokens, " tokens in ", steps_.size(), " steps");
  }

  std::string steps() const {
    const int64_t most = std::min<int64_t>(batcher_->steps_per_epoch(), 40);
    if (most < 2) throw Skipped("an epoch has one step");
    const std::vector<Batch> first = whole(0);
    const auto equal = [](const Batch& a, const Batch& b) { return ids_of(a.targets) == ids_of(b.targets); };
    for (int64_t step = 1; step < most; ++step) {
      const std::vector<Batch> other = whole(step);
      if (!std::equal(first.begin(), first.end(), other.begin(), other.end(), equal)) return "have other tokens";
    }
    fail("steps 0 to ", most - 1, " have the same batch; batch() must depend on the step");
  }

  std::string targets() const {
    for (const int64_t step : steps_) {
      const Batch b = part(step, 0, kGlobal);
      const std::vector<int32_t> in = ids_of(b.inputs), out = ids_of(b.targets);
      const auto length = static_cast<size_t>(b.inputs.dim(1));
      for (size_t i = 0; i + 1 < in.size(); ++i)
        if ((i + 1) % length != 0 && out[i] != in[i + 1])
          fail("step ", step, ", sequence ", i / length, ", position ", i % length, ": the target is ", out[i],
               ", the next input ", in[i + 1]);
    }
    return "each is the input that follows";
  }

  std::string determinism() const {
    const auto other = make(s_, pairs_);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const Batch a = part(*step, 0, 1), b = part(*step, 0, 1), c = other->batch(*step, 0, 1);
      if (!same(a, b)) fail("step ", *step, ": a second call gives another batch; batch() must be a pure function");
      if (!same(a, c)) fail("step ", *step, ": a second batcher with the same seed gives another batch");
    }
    return "the same batch for every call";
  }

  // Batches with another seed may be equal only if the batcher samples nothing.
  std::string seed() const {
    const auto other = make(s_, pairs_, 6);
    const int64_t epoch = batcher_->steps_per_epoch(), most = std::min<int64_t>(epoch, 40);
    for (int64_t step = 0; step < most; ++step)
      for (int64_t i = 0; i < kGlobal; ++i)
        if (!same(part(step, i, 1), other->batch(step, i, 1))) return "another seed gives other batches";
    if (pairs_ ? shuffles_pairs(most) : draws_text(most))
      fail("the batches look drawn at random, but are the same with another seed; draw them with env.key");
    return "the same batches with any seed: nothing is drawn";
  }
  // Returns whether two epochs contain the same batches in a different order.
  bool shuffles_pairs(int64_t most) const {
    const int64_t epoch = batcher_->steps_per_epoch();
    std::multiset<std::vector<int32_t>> first, second;
    bool moved = false;
    for (int64_t step = 0; step < std::min<int64_t>(epoch, 400); ++step) {
      const std::vector<int32_t> a = ids_of(part(step, 0, 1).targets), b = ids_of(part(epoch + step, 0, 1).targets);
      moved |= step < most && a != b;
      first.insert(a);
      second.insert(b);
    }
    return moved && first == second;
  }
  // Returns whether the first sequence of the steps begins at irregular positions of the text.
  bool draws_text(int64_t most) const {
    const TokenArray text = running_text();
    const std::span<const int32_t> all = text.tokens();
    std::set<int64_t> moves;
    int64_t before = 0;
    for (int64_t step = 0; step < most; ++step) {
      const std::vector<int32_t> in = ids_of(part(step, 0, 1).inputs);
      const int64_t start = std::search(all.begin(), all.end(), in.begin(), in.end()) - all.begin();
      if (step > 0) moves.insert(start - before);
      before = start;
    }
    return most >= 8 && static_cast<int64_t>(moves.size()) > most / 2;
  }

  std::string slices() const {
    if (pairs_) throw Skipped("sub-batches are requested one by one");
    for (const int64_t step : steps_) {
      const Batch all = part(step, 0, kGlobal);
      const std::vector<int32_t> ids = ids_of(all.inputs);
      const auto length = static_cast<size_t>(all.inputs.dim(1));
      for (int64_t i = 0; i < kGlobal; ++i) {
        const Batch one = part(step, i, 1);
        const auto at = static_cast<size_t>(i);
        const bool equal =
            std::equal(ids.begin() + static_cast<long>(at * length), ids.begin() + static_cast<long>((at + 1) * length),
                       one.inputs.values<int32_t>().begin());
        if (!equal || one.slots[0] != all.slots[at])
          fail("step ", step, ": sequence ", i, " alone is not sequence ", i,
               " of the whole batch; ranks would train on other data");
      }
    }
    return "any part of a step is that part of the whole";
  }

  std::string step_size() const {
    for (const int64_t step : steps_) {
      int64_t tokens = 0, sequences = 0;
      for (const Batch& b : whole(step)) {
        tokens += b.tokens();
        sequences += b.tokens() > 0 ? b.sequences() : 0;
      }
      StepSize said = batcher_->step_size(step);
      if (!pairs_ && said.tokens == 0) said = {kGlobal * batcher_->sequence_length(), kGlobal};  // the default
      if (said.tokens != tokens || said.sequences != sequences)
        fail("step ", step, ": step_size() returns ", said.tokens, " tokens of ", said.sequences,
             " sequences, but the batch has ", tokens, " of ", sequences);
    }
    return "step_size() agrees with the batches";
  }

  std::string state() const {
    if (!batcher_->carries_state()) {
      for (const int64_t step : steps_)
        for (const Batch& b : whole(step))
          if (std::find(b.fresh.begin(), b.fresh.end(), 0) != b.fresh.end())
            fail("step ", step, ": carries_state() is false, but a sequence is not fresh");
      return "every sequence starts fresh";
    }
    const int64_t epoch = batcher_->steps_per_epoch();
    const std::vector<uint8_t> fresh = part(1, 0, kGlobal).fresh;
    if (epoch > 1 && std::find(fresh.begin(), fresh.end(), 0) == fresh.end())
      fail("carries_state() is true, but every sequence of step 1 is fresh: no state would be carried");
    for (const int64_t step : {int64_t{1}, epoch, epoch + 1}) continues(step);
    return "sequences continue where the step before ended";
  }
  // Checks that each sequence of the step is fresh, or begins with the last target of its slot.
  void continues(int64_t step) const {
    const Batch first = part(step - 1, 0, kGlobal), second = part(step, 0, kGlobal);
    const std::vector<int32_t> before = ids_of(first.targets), after = ids_of(second.inputs);
    const auto here = static_cast<size_t>(first.inputs.dim(1)), next = static_cast<size_t>(second.inputs.dim(1));
    for (size_t i = 0; i < static_cast<size_t>(kGlobal); ++i)
      if (!second.fresh[i] && before[(i + 1) * here - 1] != after[i * next])
        fail("slot ", i, " of step ", step, " is not fresh, but does not continue where step ", step - 1, " ended");
  }

  // A text of fewer tokens than a step has sequences.
  std::string short_text() const {
    std::unique_ptr<Batcher> batcher;
    try {
      batcher = create<BatcherFactory>(s_.plugin, s_.config, "batcher", environment(TokenArray::of({2, 3, 4})));
    } catch (const UserError&) {
      return "refused";
    }
    if (batcher->steps_per_epoch() < 1)
      fail("steps_per_epoch() is ", batcher->steps_per_epoch(), " with a text of 3 tokens and a batch of ", kGlobal,
           " sequences; throw a UserError that names the tokens that are needed");
    batcher->batch(0, 0, kGlobal);
    return "has a batch";
  }

  const Subject& s_;
  bool pairs_;
  std::unique_ptr<Batcher> batcher_;
  std::set<int64_t> steps_;
};

}  // namespace

void check_batcher(Report& report, const Subject& subject) {
  bool pairs = false;
  try {
    pairs = make(subject, true)->sequence_length() == 0;
  } catch (const UserError&) {
  }
  report.run("construction", [&] {
    make(subject, pairs);
    return std::string(pairs ? "takes pairs of sentences" : "takes running text");
  });
  if (report.failures() == 0) BatcherCheck(subject, pairs).run(report);
}

}  // namespace lmx::app::conformance
