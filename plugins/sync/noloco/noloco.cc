// NoLoCo (Kolehmainen et al. 2025): ranks with own values, of which random pairs exchange their changes and anchors. No
// step needs all ranks, and the anchors of ranks stay different.
#include <algorithm>
#include <vector>

#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

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

  // Returns the new anchor. A rank that is left over is a pair with itself.
  Tensor exchange(Context& ctx, Fragment& f) override {
    const int64_t n = f.size;
    const Tensor mine = ctx.empty({2 * n}, DType::f32, MemClass::communication);
    add_scaled(ctx, f.own, -1, f.anchor);
    mine.slice(0, n).copy_from(f.own);
    mine.slice(n, 2 * n).copy_from(f.anchor);
    const auto other = static_cast<size_t>(partner(f.round));
    std::vector<int64_t> elements(static_cast<size_t>(env().ranks));
    elements[other] = 2 * n;
    const Tensor theirs = ctx.comm->all_to_all(mine, elements, elements, env().group)[other];
    const auto lr = static_cast<float>(c_.outer_lr / 2), pull = static_cast<float>(c_.pull / 2);
    const Tensor apart = scaled(ctx, f.anchor, -pull), d = scaled(ctx, f.own, lr);
    add_scaled(ctx, apart, pull, theirs.slice(n, 2 * n));
    add_scaled(ctx, d, lr, theirs.slice(0, n));
    add_scaled(ctx, d, 1, apart);
    if (f.kept.defined()) add_scaled(ctx, d, static_cast<float>(c_.momentum), f.kept);
    f.kept = d;
    const Tensor anchor = f.anchor.clone(MemClass::optimizer);
    add_scaled(ctx, anchor, 1, d);
    return anchor;
  }
  Merged merge(Context&, Fragment&, const Tensor& anchor) override { return {anchor, anchor}; }

 private:
  // The other rank of this rank's pair: ranks 2 i and 2 i + 1 of a random order.
  int partner(int64_t round) const {
    const RandomKey key = env().key.fold(static_cast<uint64_t>(round));
    const auto ranks = static_cast<uint64_t>(env().ranks);
    std::vector<int> order;
    for (uint64_t i = 0; i < ranks; ++i) order.push_back(static_cast<int>(permute(key, i, ranks)));
    const auto other = static_cast<size_t>(std::find(order.begin(), order.end(), env().rank) - order.begin()) ^ 1U;
    return other < order.size() ? order[other] : env().rank;
  }

  NolocoConfig c_;
};

}  // namespace

LMX_PLUGIN(sync, noloco, NolocoConfig, Noloco)
