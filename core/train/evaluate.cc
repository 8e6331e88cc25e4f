#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/pair_batches.h"
#include "ops/losses/top_k.h"
#include "train/carried_state.h"

namespace lmx {
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
  sum.sums.resize(score.sums.size());
  for (size_t i = 0; i < score.sums.size(); ++i) sum.sums[i] += score.sums[i];
}

// The sum over ranks, entry by entry.
ShardScores of_all_ranks(const ShardScores& own, Communicator& comm) {
  constexpr size_t kOwn = 4;  // numbers before the sums of the metrics
  std::vector<double> numbers;
  for (const SplitScore& s : own) {
    numbers.insert(numbers.end(), {s.nats, static_cast<double>(s.tokens), s.complete ? 0.0 : 1.0, s.bytes});
    numbers.insert(numbers.end(), s.sums.begin(), s.sums.end());
  }
  const std::vector<double> all = comm.gather_numbers(numbers, "control");
  ShardScores sums(own.size());
  const size_t width = kOwn + own.front().sums.size();
  for (size_t i = 0; i < all.size() / width; ++i) {
    const double* n = all.data() + i * width;
    add(sums[i % own.size()], {n[0], static_cast<int64_t>(n[1]), n[2] == 0, n[3], {n + kOwn, n + width}});
  }
  return sums;
}

Context quiet_context(const Context& ctx) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  return quiet;
}

// A score without targets.
SplitScore nothing(const SplitPlan& plan) {
  SplitScore score;
  if (plan.metrics) score.sums.resize(static_cast<size_t>(plan.metrics->sums()));
  return score;
}

struct Scorer {
  Context& quiet;
  const Network& network;
  const ParameterStore& params;
  const SplitPlan& plan;

  // Scores the targets of a batch. score_of(target): the score to which a target belongs.
  template <class ScoreOf>
  void score(Batch& batch, ModelState& state, ScoreOf&& score_of) const {
    if (plan.separator >= 0) separate_documents(batch, plan.separator);
    const Var features = network.forward(quiet, params, batch, state);
    const Tensor targets = batch.targets.reshape({batch.tokens()});
    std::vector<ops::TopRow> rows;  // of the metrics that need words
    const auto reading = quiet.read<float>(
        network.loss->evaluate(quiet, params, features.value(), targets, top_rows_of(targets.numel(), rows)));
    const auto nats = reading.get();
    for (size_t i = 0; i < nats.size(); ++i) {
      SplitScore& score = score_of(i);
      score.nats += nats[i];
      ++score.tokens;
      if (!plan.token_bytes.empty()) score.bytes += plan.token_bytes[static_cast<size_t>(targets.data<int32_t>()[i])];
    }
    if (plan.metrics && !plan.metrics->empty() && !quiet.device.counts) measure(targets, nats, rows, score_of);
  }

 private:
  // Collects the most probable words of `n` targets, if a metric needs them.
  LogitsVisitor top_rows_of(int64_t n, std::vector<ops::TopRow>& rows) const {
    if (!plan.metrics || plan.metrics->words() == 0) return {};
    return [this, n, &rows](int64_t first, const Tensor& logits) {
      if (quiet.device.counts) return;
      LMX_CHECK(first == static_cast<int64_t>(rows.size()) && first + logits.dim(0) <= n,
                "evaluate() gives logits of rows ", first, " to ", first + logits.dim(0), " of ", n, " after ",
                rows.size());
      for (ops::TopRow& row : ops::top_rows(quiet, logits, plan.metrics->words(), {}, 0))
        rows.push_back(std::move(row));
    };
  }

  // Adds the predictions for the targets to the sums of the metrics. `rows`: empty if no metric needs words.
  template <class ScoreOf>
  void measure(const Tensor& targets, std::span<const float> nats, const std::vector<ops::TopRow>& rows,
               ScoreOf&& score_of) const {
    LMX_CHECK(plan.metrics->words() == 0 || rows.size() == nats.size(), "evaluate() gives logits of ", rows.size(),
              " of ", nats.size(), " rows");
    std::vector<int32_t> words;
    std::vector<double> probabilities;
    for (size_t i = 0; i < nats.size(); ++i) {
      words.clear();
      probabilities.clear();
      if (!rows.empty()) {
        for (const ops::Entry& e : rows[i].entries) {
          words.push_back(e.id);
          probabilities.push_back(std::exp(static_cast<double>(e.logit) - rows[i].log_sum_exp));
        }
      }
      plan.metrics->add({targets.data<int32_t>()[i], static_cast<double>(nats[i]), words, probabilities},
                        score_of(i).sums);
    }
  }
};

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
  const Scorer scorer{quiet, network, params, plan};
  const EvalPlan batches(first_tokens(tokens, plan.max_tokens), plan.sequences, plan.length, plan.split);
  const int64_t first = chunk_begin(batches.slots(), ctx.rank, ctx.ranks);
  const int64_t count = chunk_begin(batches.slots(), ctx.rank + 1, ctx.ranks) - first;
  CarriedState carried(quiet, *network.model, first, count);
  SplitScore score = nothing(plan);
  for (int64_t i = 0; i < batches.batches() && score.complete; ++i) {
    score.complete = !(plan.interrupted && plan.interrupted());
    Batch batch = batches.batch(i, first, count, quiet.host);
    if (batch.sequences() == 0) continue;
    ModelState state = carried.gather(quiet, batch, plan.carry);
    scorer.score(batch, state, [&](size_t) -> SplitScore& { return score; });
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
  const Scorer scorer{quiet, network, params, plan};
  const int64_t first = chunk_begin(shards.size(), ctx.rank, ctx.ranks);
  const int64_t end = chunk_begin(shards.size(), ctx.rank + 1, ctx.ranks);
  CarriedState carried(quiet, *network.model, first, end - first);
  ShardScores scores(static_cast<size_t>(shards.size()), nothing(plan));
  const auto score = [&](const std::vector<int64_t>& slots, int64_t offset, int64_t targets) {
    Batch batch = shard_batch(shards, slots, offset, targets, quiet.host);
    ModelState state = carried.gather(quiet, batch, plan.carry);
    scorer.score(batch, state, [&](size_t i) -> SplitScore& {
      return scores[static_cast<size_t>(slots[i / static_cast<size_t>(targets)])];
    });
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
  const Scorer scorer{quiet, network, params, plan};
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
  SplitScore score = nothing(plan);
  const int64_t count = (static_cast<int64_t>(order.size()) + plan.sequences - 1) / plan.sequences;
  for (int64_t i = 0; i < count && score.complete; ++i) {
    score.complete = !(plan.interrupted && plan.interrupted());
    if (i % ctx.ranks != ctx.rank) continue;
    const auto first = static_cast<size_t>(i * plan.sequences);
    const size_t end = std::min(order.size(), first + static_cast<size_t>(plan.sequences));
    Batch batch = make_pair_batch(pairs, std::span(order).subspan(first, end - first), quiet.host);
    ModelState state = network.initial_state(quiet, batch.sequences());
    scorer.score(batch, state, [&](size_t) -> SplitScore& { return score; });
  }
  return sum_over_ranks(score, *ctx.comm);
}

void check_validation(const Recipe& r, const Dataset& data) {
  if (data.valid.size() < 2)
    throw UserError(str("[data] the validation split holds ", data.valid.size(),
                        " tokens; raise data.valid_fraction or give data.valid_files"));
  if (r.train.eval_shards) shards_of_split(data.valid, data.valid_strings, r.train.eval_batch, kEvalSeed, "valid");
}

}  // namespace lmx
