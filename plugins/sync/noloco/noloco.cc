// NoLoCo (Kolehmainen et al. 2025): ranks with own values, of which random pairs exchange their changes and anchors. No
// step needs all ranks, and the anchors of ranks stay different.
#include <algorithm>
#include <vector>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

constexpr const char *kStep = "step", *kRound = "round";

struct NolocoConfig {
  int64_t every = 50;
  double momentum = 0.5, outer_lr = 0.7, pull = 0.7;
  void fields(Fields& f) {
    f.field("every", every, "steps between two exchanges", {1, 1'000'000'000});
    f.field("momentum", momentum, "part of the last outer step that is repeated", {0, 1, false});
    f.field("outer_lr", outer_lr, "factor of the mean change of a pair", kNonNegative);
    f.field("pull", pull, "part of the distance to the mean of a pair's anchors that a rank moves", {0, 2});
  }
  Traits traits() const { return {{trait::kReplicas, "true"}}; }
};

// With the anchor a and the values p of a rank, d its last outer step, and a bar over the mean of a pair:
//
//   d = momentum d + outer_lr mean(p - a) - pull (a - mean(a))        a = a + d        p = a
class Noloco final : public ReplicaStrategy {
 public:
  Noloco(const NolocoConfig& config, const SyncEnv& env) : ReplicaStrategy(env), c_(config) {}
  Rhythm rhythm(int64_t) const override { return {c_.every}; }
  bool gossips() const override { return true; }

  // Returns the values and the anchor of the other rank of the pair (2, size), or an empty tensor.
  Tensor exchange(Context& ctx, Fragment& f) override {
    const int other = partner(round_++);
    const bool paired = other != env().rank;
    std::vector<int64_t> rows(static_cast<size_t>(env().ranks));
    if (paired) rows[static_cast<size_t>(other)] = 2;
    const Tensor own = ctx.empty({paired ? 2 : 0, f.size}, DType::f32, MemClass::communication);
    if (paired) {
      row_of(own, 0).copy_from(f.own);
      row_of(own, 1).copy_from(f.anchor);
    }
    const std::vector<Tensor> received = ctx.comm->all_to_all(own, rows, rows, env().group);
    return paired ? received[static_cast<size_t>(other)] : own;
  }

  Merged merge(Context& ctx, Fragment& f, const Tensor& received) override {
    const bool paired = received.dim(0) == 2;
    const auto lr = static_cast<float>(paired ? c_.outer_lr / 2 : c_.outer_lr), pull = static_cast<float>(c_.pull / 2);
    const Tensor d = ctx.zeros({f.size}, DType::f32, MemClass::optimizer);
    if (step_.defined()) add_scaled(ctx, d, static_cast<float>(c_.momentum), step_);
    add_scaled(ctx, d, lr, f.own);
    add_scaled(ctx, d, -lr, f.anchor);
    if (paired) {
      add_scaled(ctx, d, lr, row_of(received, 0));
      add_scaled(ctx, d, pull - lr, row_of(received, 1));
      add_scaled(ctx, d, -pull, f.anchor);
    }
    step_ = d;
    const Tensor anchor = f.anchor.clone(MemClass::optimizer);
    add_scaled(ctx, anchor, 1, d);
    return {anchor, anchor};
  }

  StateDict state() const override {
    StateDict all;
    if (!step_.defined()) return all;
    const auto round = static_cast<double>(round_);
    all.emplace(kStep, step_);
    all.emplace(kRound, Tensor::from<double>(Allocator::cpu(), {1}, std::span(&round, 1)));
    return all;
  }
  void load(Context& ctx, const std::vector<StateDict>& ranks) override {
    step_ = {};
    round_ = 0;
    const bool any = std::any_of(ranks.begin(), ranks.end(), [](const StateDict& state) { return !state.empty(); });
    if (!any) return;
    if (static_cast<int>(ranks.size()) != ctx.ranks)
      throw UserError(str("[sync] the checkpoint is of ", ranks.size(), " ranks with different anchors; ", ctx.ranks,
                          " cannot continue from it"));
    const StateDict& own = ranks[static_cast<size_t>(ctx.rank)];
    if (own.size() != 2 || !own.contains(kStep) || !own.contains(kRound))
      throw UserError(str("[sync] the checkpoint's state of sync.", env().group, " is not of noloco"));
    step_ = ctx.upload(own.at(kStep)).clone(MemClass::optimizer);
    round_ = static_cast<int64_t>(own.at(kRound).values<double>()[0]);
  }

  std::string describe(int ranks) const override {
    return str(ranks, ranks == 1 ? " rank has its own values" : " ranks have their own values",
               ", exchanged in pairs every ", plural(c_.every, "step"));
  }

 private:
  // The other rank of this rank's pair: ranks 2 i and 2 i + 1 of a random order. The rank itself, if it is left over.
  int partner(int64_t round) const {
    const RandomKey key = env().key.fold(static_cast<uint64_t>(round));
    const auto ranks = static_cast<uint64_t>(env().ranks);
    std::vector<int> order;
    for (uint64_t i = 0; i < ranks; ++i) order.push_back(static_cast<int>(permute(key, i, ranks)));
    const auto other =
        static_cast<size_t>(std::find(order.begin(), order.end(), env().rank) - order.begin()) ^ size_t { 1 };
    return other < order.size() ? order[other] : env().rank;
  }
  static Tensor row_of(const Tensor& t, int64_t row) { return t.slice(row, row + 1).reshape({t.dim(1)}); }

  NolocoConfig c_;
  Tensor step_;        // d; undefined before the first exchange
  int64_t round_ = 0;  // exchanges
};

}  // namespace

LMX_PLUGIN(sync, noloco, NolocoConfig, Noloco)
