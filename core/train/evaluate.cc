#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/pair_batches.h"
#include "train/carried_state.h"

namespace lmx::train {
namespace {

TokenArray first_tokens(const TokenArray& tokens, int64_t n) {
  if (n <= 0 || n >= tokens.size() || tokens.size() <= 2) return tokens;
  // A target needs a token before it, so one target needs two tokens.
  std::vector<int32_t> part(static_cast<size_t>(std::max<int64_t>(n, 2)));
  tokens.copy(0, part);
  return TokenArray::of(std::move(part));
}

void add(SplitScore& sum, const SplitScore& score) {
  sum.nats += score.nats;
  sum.tokens += score.tokens;
  sum.bytes += score.bytes;
  sum.complete = sum.complete && score.complete;
}

// The sum over ranks, entry by entry.
ShardScores of_all_ranks(const ShardScores& own, Communicator& comm) {
  std::vector<double> numbers;
  for (const SplitScore& s : own)
    numbers.insert(numbers.end(), {s.nats, static_cast<double>(s.tokens), s.complete ? 0.0 : 1.0, s.bytes});
  const std::vector<double> all = comm.gather_numbers(numbers, "control");
  ShardScores sums(own.size());
  for (size_t i = 0; i < all.size(); i += 4)
    add(sums[i / 4 % own.size()], {all[i], static_cast<int64_t>(all[i + 1]), all[i + 2] == 0, all[i + 3]});
  return sums;
}

Context quiet_context(const Context& ctx) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  return quiet;
}

// The negative log-likelihood of each target, in nats.
Tensor nats_of(Context& quiet, const Network& network, const ParameterStore& params, Batch& batch,
               const SplitPlan& plan, ModelState& state) {
  if (plan.separator >= 0) separate_documents(batch, plan.separator);
  const Var features = network.forward(quiet, params, batch, state);
  return network.loss->evaluate(quiet, params, features.value(), batch.targets.reshape({batch.tokens()}));
}

// Bytes of the text of the targets.
double bytes_of(const Batch& batch, const SplitPlan& plan) {
  if (plan.token_bytes.empty()) return 0;
  double bytes = 0;
  const int32_t* ids = batch.targets.data<int32_t>();
  for (int64_t i = 0; i < batch.tokens(); ++i) bytes += plan.token_bytes[static_cast<size_t>(ids[i])];
  return bytes;
}

SplitScore sum_over_ranks(const SplitScore& own, Communicator& comm) {
  return of_all_ranks({own}, comm).front();
}

}  // namespace

double SplitScore::ppl() const {
  return std::exp(nll());
}

std::optional<double> SplitScore::bpb() const {
  if (!(bytes > 0)) return {};
  return nats / std::numbers::ln2 / bytes;
}

SplitScore score_split(const Context& ctx, const Network& network, const ParameterStore& params,
                       const TokenArray& tokens, const SplitPlan& plan) {
  Context quiet = quiet_context(ctx);
  const EvalPlan batches(first_tokens(tokens, plan.max_tokens), plan.sequences, plan.length, plan.split);
  const int64_t first = chunk_begin(batches.slots(), ctx.rank, ctx.ranks);
  const int64_t count = chunk_begin(batches.slots(), ctx.rank + 1, ctx.ranks) - first;
  CarriedState carried(quiet, *network.model, first, count);
  SplitScore score;
  for (int64_t i = 0; i < batches.batches() && score.complete; ++i) {
    score.complete = !(plan.interrupted && plan.interrupted());
    Batch batch = batches.batch(i, first, count, quiet.host);
    if (batch.sequences() == 0) continue;
    ModelState state = carried.gather(quiet, batch, plan.carry);
    const auto nll = quiet.read<float>(nats_of(quiet, network, params, batch, plan, state));
    for (const float nats : nll.get()) score.nats += nats;
    score.tokens += batch.tokens();
    score.bytes += bytes_of(batch, plan);
    carried.stage(batch, state);
    carried.commit(quiet);
  }
  return sum_over_ranks(score, *ctx.comm);
}

namespace {

// The tokens at offset .. offset + length of the shard of each slot in `slots`.
Batch shard_batch(const StringShards& shards, const std::vector<int64_t>& slots, int64_t offset, int64_t length,
                  const std::shared_ptr<Allocator>& allocator) {
  std::vector<int32_t> tokens(slots.size() * static_cast<size_t>(length + 1));
  std::vector<int64_t> starts;
  for (const int64_t slot : slots) {
    starts.push_back(static_cast<int64_t>(starts.size()) * (length + 1));
    shards.copy(slot, offset, length + 1, tokens.data() + starts.back());
  }
  Batch batch = make_batch(TokenArray::of(std::move(tokens)), starts, length, allocator);
  batch.slots = slots;
  batch.fresh.assign(slots.size(), offset == 0);
  return batch;
}

}  // namespace

StringShards shards_of_split(const TokenArray& tokens, const TextStrings& strings, int64_t shards, int64_t seed,
                             const std::string& split) {
  if (strings.size() == 0)
    throw UserError(str("[eval] the data of this run keeps no strings to make shards of the ", split,
                        " split; that of chars and of bytes does"));
  StringShards made(tokens, strings, shards, RandomKey(static_cast<uint64_t>(seed)).fold("eval shards"), split);
  if (made.shortest() < 2)
    throw UserError(str("[eval] the shortest of ", shards, " shards of the ", split, " split holds ", made.shortest(),
                        " token; use fewer shards"));
  return made;
}

ShardScores score_shards(const Context& ctx, const Network& network, const ParameterStore& params,
                         const StringShards& shards, const SplitPlan& plan) {
  Context quiet = quiet_context(ctx);
  const int64_t first = chunk_begin(shards.size(), ctx.rank, ctx.ranks);
  const int64_t end = chunk_begin(shards.size(), ctx.rank + 1, ctx.ranks);
  CarriedState carried(quiet, *network.model, first, end - first);
  ShardScores scores(static_cast<size_t>(shards.size()));
  const auto score = [&](const std::vector<int64_t>& slots, int64_t offset, int64_t targets) {
    Batch batch = shard_batch(shards, slots, offset, targets, quiet.host);
    ModelState state = carried.gather(quiet, batch, plan.carry);
    const auto nll = quiet.read<float>(nats_of(quiet, network, params, batch, plan, state));
    const auto values = nll.get();
    const int32_t* ids = batch.targets.data<int32_t>();
    for (size_t i = 0; i < values.size(); ++i) {
      SplitScore& s = scores[static_cast<size_t>(slots[i / static_cast<size_t>(targets)])];
      s.nats += values[i];
      ++s.tokens;
      if (!plan.token_bytes.empty()) s.bytes += plan.token_bytes[static_cast<size_t>(ids[i])];
    }
    carried.stage(batch, state);
    carried.commit(quiet);
  };
  bool complete = true, more = end > first;
  for (int64_t offset = 0; more && complete; offset += plan.length) {
    if (plan.max_tokens > 0 && offset * shards.size() >= plan.max_tokens) break;
    complete = !(plan.interrupted && plan.interrupted());
    std::vector<int64_t> whole;  // shards with a full window; any other shard is at its last window
    more = false;
    for (int64_t s = first; s < end && complete; ++s) {
      const int64_t left = shards.length(s) - 1 - offset;
      more = more || left > 0;
      if (left >= plan.length)
        whole.push_back(s);
      else if (left > 0)
        score({s}, offset, left);
    }
    if (!whole.empty()) score(whole, offset, plan.length);
  }
  for (SplitScore& s : scores) s.complete = complete;
  return of_all_ranks(scores, *ctx.comm);
}

SplitScore score_text(const Context& ctx, const Network& network, const ParameterStore& params,
                      const TokenArray& tokens, const TextStrings& strings, const SplitPlan& plan) {
  if (!plan.shards) return score_split(ctx, network, params, tokens, plan);
  const StringShards shards = shards_of_split(tokens, strings, plan.sequences, kEvalSeed, plan.split);
  SplitScore sum;
  for (const SplitScore& s : score_shards(ctx, network, params, shards, plan)) add(sum, s);
  return sum;
}

SplitScore score_pairs(const Context& ctx, const Network& network, const ParameterStore& params, const PairArray& pairs,
                       const SplitPlan& plan) {
  Context quiet = quiet_context(ctx);
  std::vector<int64_t> order;  // the split's first sentences, by length
  int64_t tokens = 0;
  for (int64_t i = 0; i < pairs.size() && (plan.max_tokens <= 0 || tokens < plan.max_tokens); ++i) {
    order.push_back(i);
    tokens += static_cast<int64_t>(pairs.target(i).size());
  }
  if (order.empty()) throw UserError(str("[eval] the ", plan.split, " split of this data holds no pairs of sentences"));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::pair(pairs.target(a).size(), pairs.source(a).size()) <
           std::pair(pairs.target(b).size(), pairs.source(b).size());
  });
  SplitScore score;
  const int64_t count = (static_cast<int64_t>(order.size()) + plan.sequences - 1) / plan.sequences;
  for (int64_t i = 0; i < count && score.complete; ++i) {
    score.complete = !(plan.interrupted && plan.interrupted());
    if (i % ctx.ranks != ctx.rank) continue;
    const auto first = static_cast<size_t>(i * plan.sequences);
    const size_t end = std::min(order.size(), first + static_cast<size_t>(plan.sequences));
    Batch batch = make_pair_batch(pairs, std::span(order).subspan(first, end - first), quiet.host);
    ModelState state = network.initial_state(quiet, batch.sequences());
    const auto nll = quiet.read<float>(nats_of(quiet, network, params, batch, plan, state));
    for (const float nats : nll.get()) score.nats += nats;
    score.tokens += batch.tokens();
  }
  return sum_over_ranks(score, *ctx.comm);
}

void check_validation(const Recipe& r, const Dataset& data) {
  if (data.valid.size() < 2)
    throw UserError(str("[data] the validation split holds ", data.valid.size(),
                        " tokens; raise data.valid_fraction or give data.valid_files"));
  if (r.train.eval_shards) shards_of_split(data.valid, data.valid_strings, r.train.eval_batch, kEvalSeed, "valid");
}

}  // namespace lmx::train
