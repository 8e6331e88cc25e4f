#include "app/calibration/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/memory/counted.h"
#include "app/memory/memory_check.h"
#include "data/drawn_text.h"
#include "lmx/pair_batches.h"
#include "lmx/parallel.h"
#include "lmx/row_sync.h"
#include "recipe/comm_config.h"
#include "recipe/sync_rules.h"

namespace lmx::app::calibration {
namespace {

constexpr int64_t kUploaded = int64_t{1} << 20;  // floats that the host makes for a device

TokenArray sentences(uint64_t seed, int64_t number, int64_t vocabulary) {
  std::vector<int32_t> ids = drawn_words(seed, number * kSentence, vocabulary);
  for (size_t i = 0; i < ids.size(); ++i)  // each sentence ends once
    ids[i] = (i + 1) % static_cast<size_t>(kSentence) == 0 ? Vocabulary::kEos : std::max(ids[i], Vocabulary::kEos + 1);
  return TokenArray::of(std::move(ids));
}

}  // namespace

Batch random_batch(const Outline& outline, int64_t tokens, uint64_t seed) {
  const Shares& s = outline.shares;
  if (s.pairs) {
    const int64_t number = std::max<int64_t>(1, tokens / kSentence);
    std::vector<int64_t> all(static_cast<size_t>(number));
    std::iota(all.begin(), all.end(), 0);
    return make_pair_batch(PairArray(sentences(seed, number, s.vocab), sentences(seed + 1, number, s.vocab)), all,
                           Allocator::cpu());
  }
  Batch batch;
  const int64_t sequences = std::max<int64_t>(1, tokens / s.length);
  const auto words = [&](uint64_t part) {
    return Tensor::from<int32_t>(Allocator::cpu(), {sequences, s.length},
                                 drawn_words(seed + part, sequences * s.length, s.vocab));
  };
  batch.inputs = words(0);
  batch.targets = words(1);
  batch.slots.resize(static_cast<size_t>(sequences));
  std::iota(batch.slots.begin(), batch.slots.end(), 0);
  batch.fresh.assign(static_cast<size_t>(sequences), 1);
  return batch;
}

Tensor noise(Context& ctx, const Shape& shape, float start, MemClass c) {
  Tensor t = ctx.empty(shape, DType::f32, c);
  const bool device = ctx.device.kind != Device::Kind::cpu;
  const int64_t some = device ? std::min(t.numel(), kUploaded) : t.numel();
  Tensor values = device ? Tensor::empty(ctx.host, {some}, DType::f32) : t;
  float x = start;
  for (float& v : values.values<float>()) v = x = x > 0.5F ? x - 0.93F : x + 0.013F;
  if (!device) return t;
  Tensor flat = t.reshape({t.numel()});
  Tensor first = flat.slice(0, some);
  first.copy_from(ctx.upload(values));
  for (int64_t begin = some; begin < t.numel(); begin += some) {  // they repeat
    const int64_t size = std::min(some, t.numel() - begin);
    Tensor part = flat.slice(begin, begin + size);
    part.copy_from(flat.slice(0, size));
  }
  return t;
}

namespace {

constexpr int kRehearsingRanks = 4, kSteps = 4;

// One virtual rank.
class Rehearsal {
 public:
  Rehearsal(Communicator& comm, const Recipe& recipe, const Outline& outline, const ParameterStore& params)
      : outline_(outline),
        params_(params.replica()),
        rules_(make_exchanger(
            recipe.sync, "sync",
            SyncEnv{"", outline.network.specs, comm.rank(), comm.size(), RandomKey(), comm.nodes().per_node()})) {
    ctx_.comm = &comm;
    ctx_.rank = comm.rank();
    ctx_.ranks = comm.size();
    ctx_.compute = compute_of(recipe);
    ctx_.allocator = ctx_.host = comm.allocator();
  }

  // Processor time of each unit: the least of all steps but the first, which allocates memory. Ranks that compute on
  // the same core or need the same memory at that moment only add to it.
  std::vector<double> run() {
    std::vector<double> least;
    for (int step = 0; step < kSteps; ++step) {
      StepPlan plan;
      plan.step = step;
      const Batch batch = random_batch(outline_, outline_.shares.own_tokens, seed_of(step, 2 * ctx_.rank));
      rules_->begin_step(ctx_, params_, std::span(&batch, 1), plan);
      for (const ParameterSpec& spec : outline_.network.specs)
        if (!spec.frozen) set_gradient(spec, batch, plan);
      rules_->finish();
      rules_->after_step(ctx_);
      params_.clear_gradients();
      const std::vector<UnitTime> units = rules_->timeline();
      least.resize(units.size(), INFINITY);
      for (size_t i = 0; step > 0 && i < least.size(); ++i) least[i] = std::min(least[i], units[i].cpu);
    }
    return least;
  }

 private:
  uint64_t seed_of(int step, int part) const { return static_cast<uint64_t>((step * 1000 + part) * 2 + 1); }

  // The words of the batch, and the candidates of the ranks that sample the same ones.
  std::vector<int32_t> words_of(const ParameterSpec& spec, const Batch& batch, int step) const {
    const Tensor& from = spec.output ? batch.targets : batch.inputs;
    std::vector<int32_t> words(from.values<int32_t>().begin(), from.values<int32_t>().end());
    const int64_t count = outline_.network.loss->plan().samples;
    if (!spec.output || count == 0) return words;
    const RandomKey key = rules_->candidate_key(ctx_.rank, step, RandomKey(seed_of(step, 999)));
    const auto samples = drawn_words(key.value(), count, outline_.shares.vocab);
    words.insert(words.end(), samples.begin(), samples.end());
    return words;
  }

  void set_gradient(const ParameterSpec& spec, const Batch& batch, const StepPlan& plan) {
    Gradient& grad = params_.at(spec.name).grad();
    const float start = 0.1F * static_cast<float>(1 + ctx_.rank);
    const auto planned = plan.rows.find(spec.name);
    if (!spec.sparse && planned == plan.rows.end()) {
      grad.dense = noise(ctx_, spec.shape, start, MemClass::gradients);
      return;
    }
    RowSparse piece;
    piece.unique = planned != plan.rows.end();
    piece.indices = piece.unique ? planned->second : words_of(spec, batch, static_cast<int>(plan.step));
    const auto rows = static_cast<int64_t>(piece.indices.size());
    piece.rows = noise(ctx_, spec.shape.rank() == 1 ? Shape{rows} : Shape{rows, row_width(spec.shape)}, start,
                       MemClass::gradients);
    grad.pieces.push_back(std::move(piece));
  }

  const Outline& outline_;
  Context ctx_;
  ParameterStore params_;
  std::unique_ptr<Exchanger> rules_;
};

// The sizes of `ranks` ranks with the share of a rank of the job.
Outline outline_on(const Recipe& recipe, int job, int ranks) {
  const Shares share = outline_of(recipe, job, job).shares;
  Outline outline = outline_of(recipe, ranks, ranks);
  outline.shares = share;
  outline.shares.ranks = ranks;
  outline.shares.step_tokens = share.own_tokens * ranks;
  return outline;
}

bool exchange_fits(const Recipe& recipe, const Outline& outline, int job) {
  const RankMemory one = count_rank(recipe, outline.batch, {Device::Kind::cpu, job, 0}).memory;
  const int64_t need = one.of(MemClass::parameters) +
                       outline.shares.ranks * (one.of(MemClass::gradients) + one.of(MemClass::communication)),
                have = machine_memory().bytes;
  return have == 0 || need < have / 2;
}

}  // namespace

std::vector<plan::MeasuredExchange> rehearse_exchange(const Recipe& recipe, int job) {
  if (is_asynchronous(recipe.sync, "sync") || has_replicas(recipe.sync, "sync") || has_shards(recipe.sync, "sync"))
    return {};
  const int ranks = std::clamp(job, 2, kRehearsingRanks);
  const Outline outline = outline_on(recipe, job, ranks);
  if (!exchange_fits(recipe, outline, job)) return {};
  Recipe counted = recipe;
  counted.batch.global = outline.shares.sequences * ranks;
  const std::vector<UnitTime> units = count_rank(counted, outline.batch, {Device::Kind::cpu, ranks, 0}).units;
  Context ctx;
  ParameterStore params;
  for (ParameterSpec spec : outline.network.specs) {
    spec.init.kind = "zeros";
    params.add(ctx, spec, RandomKey());
  }
  const Node comm = parse_yaml(str("{name: virtual, ranks: ", ranks, "}"), "calibration");
  // One thread for each rank, also for what the ranks compute once, as in a group of processes.
  const int threads = num_threads();
  set_num_threads(1);
  std::vector<double> seconds;
  make_comm_group(comm, "comm", CommEnv{.threads = 1})->run([&](Communicator& c) {
    const std::vector<double> own = Rehearsal(c, recipe, outline, params).run();
    if (c.rank() == 0) seconds = own;  // it also computes what processes compute each for themselves
  });
  set_num_threads(threads);
  const Node rules = full_sync_config(recipe.sync, "sync");
  std::vector<plan::MeasuredExchange> all;
  for (size_t i = 0; i < units.size(); ++i)
    if (units[i].bytes.moved > 0)
      all.push_back({plan::strategy_text(*rules.find(units[i].rule)), ranks, units[i].bytes.moved, 1e6 * seconds[i]});
  return all;
}

}  // namespace lmx::app::calibration
