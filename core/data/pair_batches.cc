#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "lmx/data.h"
#include "lmx/error.h"
#include "lmx/pair_batches.h"

namespace lmx {
namespace {

std::shared_ptr<const std::vector<int64_t>> ends_of(const TokenArray& tokens, const char* side) {
  auto ends = std::make_shared<std::vector<int64_t>>();
  const std::span<const int32_t> ids = tokens.tokens();
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == Vocabulary::kEos) ends->push_back(static_cast<int64_t>(i) + 1);
  if (!ids.empty() && ids.back() != Vocabulary::kEos)
    throw UserError(
        str("[data] the ", side, " side of parallel text does not end with </s>: its last sentence is cut"));
  return ends;
}

std::span<const int32_t> sentence(const TokenArray& tokens, const std::vector<int64_t>& ends, int64_t i) {
  LMX_CHECK(i >= 0 && i < static_cast<int64_t>(ends.size()), i, " of ", ends.size());
  const auto at = static_cast<size_t>(i);
  const int64_t begin = i ? ends[at - 1] : 0;
  return tokens.tokens().subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[at] - begin));
}

}  // namespace

PairArray::PairArray(TokenArray source, TokenArray target)
    : source_(std::move(source)),
      target_(std::move(target)),
      source_ends_(ends_of(source_, "source")),
      target_ends_(ends_of(target_, "target")) {
  if (source_ends_->size() != target_ends_->size())
    throw UserError(str("[data] parallel text has ", source_ends_->size(), " source and ", target_ends_->size(),
                        " target sentences; sentence i of one side must translate sentence i of the other"));
}

std::span<const int32_t> PairArray::source(int64_t i) const {
  return sentence(source_, *source_ends_, i);
}
std::span<const int32_t> PairArray::target(int64_t i) const {
  return sentence(target_, *target_ends_, i);
}

namespace {

int64_t length(std::span<const int32_t> sentence) {
  return static_cast<int64_t>(sentence.size());
}

void check_parallel(const BatcherEnv& env, const std::string& plugin, const std::string& path) {
  if (env.pairs.size() > 0) return;
  throw UserError(str("[", plugin, "] ", path, ": this batcher takes pairs of sentences, and the ", env.split,
                      " split of this data has none; choose parallel text (data: {name: parallel, ...}), or for a "
                      "language model a batcher of sequences (`lmx plugins list`)"));
}

}  // namespace

void PairLimit::fields(Fields& f, const char* max_tokens_help) {
  f.field("max_tokens", max_tokens, max_tokens_help, {1, 1 << 24});
  f.choice("too_long", too_long, {"error", "skip"},
           "a sentence of more than max_tokens: error (do not train), skip (leave it out, and report the number)");
}

std::span<const int64_t> PairGroups::group(int64_t g) const {
  LMX_CHECK(g >= 0 && g < count(), g, " of ", count());
  const int64_t begin = g ? ends[static_cast<size_t>(g - 1)] : 0;
  return std::span(pairs).subspan(static_cast<size_t>(begin),
                                  static_cast<size_t>(ends[static_cast<size_t>(g)] - begin));
}

PairShape shape_of(const PairArray& pairs, std::span<const int64_t> numbers) {
  PairShape shape;
  for (const int64_t i : numbers) {
    const int64_t source = length(pairs.source(i)), target = length(pairs.target(i));
    ++shape.sentences;
    shape.source += source;
    shape.target += target;
    shape.longest_source = std::max(shape.longest_source, source);
    shape.longest_target = std::max(shape.longest_target, target);
  }
  return shape;
}

PairShape shape_of(const Batch& batch) {
  PairShape shape;
  shape.sentences = batch.sequences();
  for (const int64_t n : batch.source_lengths) {
    shape.source += n;
    shape.longest_source = std::max(shape.longest_source, n);
  }
  for (const int64_t n : batch.lengths) {
    shape.target += n;
    shape.longest_target = std::max(shape.longest_target, n);
  }
  return shape;
}

Batch make_pair_batch(const PairArray& pairs, std::span<const int64_t> numbers,
                      const std::shared_ptr<Allocator>& allocator) {
  const PairShape shape = shape_of(pairs, numbers);
  Batch batch;
  batch.inputs = Tensor::empty(allocator, {shape.target}, DType::i32);
  batch.targets = Tensor::empty(allocator, {shape.target}, DType::i32);
  batch.source = Tensor::empty(allocator, {shape.source}, DType::i32);
  batch.slots.assign(numbers.begin(), numbers.end());
  batch.fresh.assign(numbers.size(), 1);
  if (numbers.empty()) return batch;
  int32_t *input = batch.inputs.data<int32_t>(), *target = batch.targets.data<int32_t>(),
          *source = batch.source.data<int32_t>();
  for (const int64_t i : numbers) {
    const std::span<const int32_t> from = pairs.source(i), to = pairs.target(i);
    source = std::copy(from.begin(), from.end(), source);
    target = std::copy(to.begin(), to.end(), target);
    *input++ = Vocabulary::kEos;
    input = std::copy(to.begin(), to.end() - 1, input);
    batch.source_lengths.push_back(length(from));
    batch.lengths.push_back(length(to));
  }
  return batch;
}

std::vector<int64_t> pairs_by_length(const BatcherEnv& env, const PairLimit& limit, const std::string& plugin,
                                     const std::string& path, int64_t& skipped) {
  check_parallel(env, plugin, path);
  const auto n = static_cast<uint64_t>(env.pairs.size());
  const RandomKey key = env.key.fold("sentences");
  std::vector<int32_t> source(n), target(n);
  for (uint64_t i = 0; i < n; ++i) {
    source[i] = static_cast<int32_t>(env.pairs.source(static_cast<int64_t>(i)).size());
    target[i] = static_cast<int32_t>(env.pairs.target(static_cast<int64_t>(i)).size());
    if (target[i] > limit.max_tokens && limit.too_long == "error")
      throw UserError(str("[", plugin, "] sentence ", i + 1, " of the ", env.split, " split has ", target[i],
                          " target tokens with </s>, more than ", path, ".max_tokens, ", limit.max_tokens,
                          "; raise it, or leave such sentences out with ", path, ".too_long=skip"));
  }
  std::vector<int64_t> order;
  order.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t drawn = permute(key, i, n);
    if (target[drawn] <= limit.max_tokens) order.push_back(static_cast<int64_t>(drawn));
  }
  skipped = static_cast<int64_t>(n - order.size());
  if (order.empty())
    throw UserError(str("[", plugin, "] every sentence of the ", env.split, " split has more than ", path,
                        ".max_tokens, ", limit.max_tokens, ", target tokens; raise it"));
  // Source lengths alternately ascend and descend, so that they do not jump where the target length increases.
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    if (target[i] != target[j]) return target[i] < target[j];
    return target[i] % 2 ? source[i] > source[j] : source[i] < source[j];
  });
  return order;
}

PairGroups cut_by_tokens(const PairArray& pairs, std::span<const int64_t> order, int64_t max_tokens) {
  PairGroups groups;
  int64_t tokens = 0;
  for (const int64_t i : order) {
    const int64_t n = length(pairs.target(i));
    if (tokens > 0 && tokens + n > max_tokens) {
      groups.close();
      tokens = 0;
    }
    groups.pairs.push_back(i);
    tokens += n;
  }
  if (tokens > 0) groups.close();
  return groups;
}

double cost_of(const PairShape& shape, const BatcherEnv::Cost& cost) {
  LMX_CHECK(shape.sentences > 0, "the cost of no sentence");
  const int64_t n = shape.sentences, source = shape.source / n, target = shape.target / n;
  const double up_source = static_cast<double>(shape.source % n) / static_cast<double>(n),
               up_target = static_cast<double>(shape.target % n) / static_cast<double>(n);
  double sum = 0;
  for (const int64_t s : {0, 1})
    for (const int64_t t : {0, 1}) {
      const double share = (s ? up_source : 1 - up_source) * (t ? up_target : 1 - up_target);
      if (share > 0) sum += share * cost(n, source + s, target + t);
    }
  return sum;
}

namespace {

// Costs of consecutive sentences of an order, from cumulative lengths.
class Runs {
 public:
  Runs(const PairArray& pairs, std::span<const int64_t> order, const BatcherEnv::Cost& cost) : cost_(cost) {
    for (const int64_t i : order) {
      source_.push_back(source_.back() + length(pairs.source(i)));
      target_.push_back(target_.back() + length(pairs.target(i)));
    }
  }
  double cost(size_t first, size_t sentences) const {
    const size_t end = first + sentences;
    PairShape shape;
    shape.sentences = static_cast<int64_t>(sentences);
    shape.source = source_[end] - source_[first];
    shape.target = target_[end] - target_[first];
    return cost_of(shape, cost_);
  }
  // Number of sentences from `first` on whose target tokens sum to at most max_tokens; at least one.
  size_t within(size_t first, int64_t max_tokens) const {
    const auto begin = target_.begin() + static_cast<std::ptrdiff_t>(first) + 1;
    const auto end = std::upper_bound(begin, target_.end(), target_[first] + max_tokens);
    return static_cast<size_t>(std::max<std::ptrdiff_t>(1, end - begin));
  }

 private:
  const BatcherEnv::Cost& cost_;
  std::vector<int64_t> source_{0}, target_{0};  // tokens before each sentence
};

}  // namespace

PairGroups cut_by_cost(const PairArray& pairs, std::span<const int64_t> order, const BatcherEnv::Cost& cost,
                       double most, int64_t max_tokens) {
  const Runs runs(pairs, order, cost);
  PairGroups groups;
  for (size_t first = 0, n; first < order.size(); first += n) {
    n = runs.within(first, max_tokens);
    if (runs.cost(first, n) <= most) {
      while (first + n < order.size() && runs.cost(first, n + 1) <= most) ++n;
    } else {
      while (n > 1 && runs.cost(first, n) > most) --n;
    }
    groups.pairs.insert(groups.pairs.end(), order.begin() + static_cast<std::ptrdiff_t>(first),
                        order.begin() + static_cast<std::ptrdiff_t>(first + n));
    groups.close();
  }
  return groups;
}

PairGroups cut_parts(const BatcherEnv& env, std::span<const int64_t> order, const CutPairs& cut) {
  if (env.parts.empty()) return cut(order);
  PairGroups all;
  for (const PairPart& part : env.parts) {
    std::vector<int64_t> own;
    for (const int64_t i : order)
      if (i >= part.first && i < part.first + part.count) own.push_back(i);
    if (own.empty())
      throw UserError(str("[batcher] every sentence of data.parts.", part.name, " is longer than a sub-batch may be"));
    const PairGroups groups = cut(own);
    const auto before = static_cast<int64_t>(all.pairs.size());
    all.pairs.insert(all.pairs.end(), groups.pairs.begin(), groups.pairs.end());
    for (const int64_t end : groups.ends) all.ends.push_back(before + end);
    all.part_ends.push_back(all.count());
  }
  return all;
}

PairBatcher::PairBatcher(const BatcherEnv& env, PairGroups groups, const Options& options)
    : env_(env), groups_(std::move(groups)), options_(options) {
  LMX_CHECK(groups_.count() > 0 && groups_.count() % options_.bundle == 0, groups_.count(), " groups in bundles of ",
            options_.bundle);
  if (groups_.part_ends.size() != env_.parts.size())
    throw UserError("[batcher] this batcher does not mix texts: choose another one, or take data.parts away");
  shares_ = shares();
  for (const Share& share : shares_) per_epoch_ += share.per_epoch * options_.bundle;
  for (int64_t g = 0; g < groups_.count(); ++g)
    tokens_.push_back(static_cast<int32_t>(shape_of(env_.pairs, groups_.group(g)).target));
}

std::vector<PairBatcher::Share> PairBatcher::shares() const {
  const int64_t bundles = groups_.count() / options_.bundle;
  if (env_.parts.empty()) return {{0, bundles, bundles}};
  std::vector<Share> shares;
  int64_t first = 0;
  for (size_t p = 0; p < env_.parts.size(); ++p) {
    const PairPart& part = env_.parts[p];
    const int64_t end = groups_.part_ends[p] / options_.bundle;
    const double passes = static_cast<double>(part.draws) / static_cast<double>(part.count);
    shares.push_back(
        {first, end - first, std::max<int64_t>(1, std::llround(passes * static_cast<double>(end - first)))});
    first = end;
  }
  return shares;
}

int64_t PairBatcher::steps_per_epoch() const {
  return (per_epoch_ + env_.global_batch - 1) / env_.global_batch;
}

int64_t PairBatcher::group_of(int64_t step, int64_t item) const {
  const int64_t steps = steps_per_epoch(), index = step % steps * env_.global_batch + item, epoch = step / steps;
  if (index >= per_epoch_) return -1;
  const RandomKey key = env_.key.fold("order").fold(static_cast<uint64_t>(epoch));
  auto place = static_cast<int64_t>(permute(key, static_cast<uint64_t>(index / options_.bundle),
                                            static_cast<uint64_t>(per_epoch_ / options_.bundle)));
  size_t part = 0;
  while (place >= shares_[part].per_epoch) place -= shares_[part++].per_epoch;
  const Share& share = shares_[part];
  if (share.per_epoch != share.bundles) {  // passes over the part do not coincide with epochs
    const auto drawn = static_cast<uint64_t>(epoch * share.per_epoch + place),
               bundles = static_cast<uint64_t>(share.bundles);
    const RandomKey pass = env_.key.fold("part").fold(static_cast<uint64_t>(part)).fold(drawn / bundles);
    place = static_cast<int64_t>(permute(pass, drawn % bundles, bundles));
  }
  return (share.first + place) * options_.bundle + index % options_.bundle;
}

Batch PairBatcher::batch(int64_t step, int64_t first, int64_t count) const {
  LMX_CHECK(count == 1 && first >= 0 && first < env_.global_batch, first, " + ", count, " of ", env_.global_batch);
  const int64_t g = group_of(step, first);
  return make_pair_batch(env_.pairs, g < 0 ? std::span<const int64_t>() : groups_.group(g), env_.allocator);
}

StepSize PairBatcher::step_size(int64_t step) const {
  StepSize size;
  for (int64_t item = 0; item < env_.global_batch; ++item) {
    const int64_t g = group_of(step, item);
    if (g < 0) continue;
    size.tokens += tokens_[static_cast<size_t>(g)];
    size.sequences += length_of(g);
  }
  return size;
}

int64_t PairBatcher::length_of(int64_t g) const {
  return static_cast<int64_t>(groups_.group(g).size());
}

std::vector<std::string> PairBatcher::describe() const {
  int64_t padded = 0, tokens = 0, target = 0, most = 0;
  for (int64_t g = 0; g < groups_.count(); ++g) {
    const PairShape shape = shape_of(env_.pairs, groups_.group(g));
    padded += shape.padded();
    tokens += shape.tokens();
    target += shape.target;
    most = std::max(most, shape.target);
  }
  const auto groups = static_cast<double>(groups_.count());
  std::vector<std::string> lines{
      format("%lld sub-batches of %.1f sentences = %.0f target tokens (at most %lld); padding would be %.1f %%",
             static_cast<long long>(groups_.count()), static_cast<double>(groups_.pairs.size()) / groups,
             static_cast<double>(target) / groups, static_cast<long long>(most),
             100 * (1 - static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(padded, 1))))};
  if (options_.skipped > 0)
    lines.push_back(
        str(options_.skipped, " of ", env_.pairs.size(), " sentences are longer than the budget and left out"));
  for (size_t p = 0; p < env_.parts.size(); ++p)
    lines.push_back(str("part ", env_.parts[p].name, ": ", env_.parts[p].count, " sentences in ",
                        shares_[p].bundles * options_.bundle, " sub-batches, ", shares_[p].per_epoch * options_.bundle,
                        " of them an epoch"));
  return lines;
}

}  // namespace lmx
