// Local SGD (Stich 2018), to start from: ranks train with separate values, and continue from their mean every few steps.
// See lmx/replica_strategy.h for what each function promises, lmx/vectors.h for functions.
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

// The keys of a rule `{params: ".*", strategy: @name@, ...}` in a recipe's `sync:`.
struct @Name@Config {
  int64_t every = 8;
  void fields(lmx::Fields& f) { f.field("every", every, "steps between two exchanges", lmx::kPositive); }
  lmx::Traits traits() const { return {{lmx::trait::kReplicas, "true"}}; }
};

class @Name@ : public lmx::ReplicaStrategy {
 public:
  @Name@(const @Name@Config& c, const lmx::SyncEnv& env) : ReplicaStrategy(env), every_(c.every) {}
  lmx::Rhythm rhythm(int64_t) const override { return {every_}; }
  // f.own: this rank's values. f.anchor: those that all ranks had after the last exchange. f.kept: what this function
  // has left there at the last exchange, such as a residual. Returns what merge() needs.
  lmx::Tensor exchange(lmx::Context& ctx, lmx::Fragment& f) override { return ctx.comm->all_reduce(f.own, env().group); }
  // Returns the new values of this rank, and the new anchor, which must be equal on all ranks.
  Merged merge(lmx::Context& ctx, lmx::Fragment&, const lmx::Tensor& sum) override {
    const lmx::Tensor mean = lmx::scaled(ctx, sum, 1 / static_cast<float>(ctx.comm->size()));
    return {mean, mean};
  }

 private:
  int64_t every_;
};

LMX_PLUGIN(sync, @name@, @Name@Config, @Name@)
