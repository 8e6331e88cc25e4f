// Local SGD (Stich 2018, algorithm 1): every H steps each rank continues from the mean of the ranks' values.
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct LocalSgdConfig {
  int64_t every = 8;
  void fields(Fields& f) {
    f.field("every", every, "steps between two averages of the ranks' values", {1, 1'000'000'000});
  }
  Traits traits() const { return {{trait::kReplicas, "true"}}; }
};

class LocalSgd final : public ReplicaStrategy {
 public:
  LocalSgd(const LocalSgdConfig& config, const SyncEnv& env) : ReplicaStrategy(env), every_(config.every) {}
  Rhythm rhythm(int64_t) const override { return {every_}; }
  Tensor exchange(Context& ctx, Fragment& f) override { return ctx.comm->all_reduce(f.own, env().group); }
  Merged merge(Context& ctx, Fragment&, const Tensor& sum) override {
    const float part = 1 / static_cast<float>(ctx.comm->size());
    const Tensor mean = ctx.comm->once_tensor(MemClass::communication, [&] { return scaled(ctx, sum, part); });
    return {mean, mean};
  }

 private:
  int64_t every_;
};

}  // namespace

LMX_PLUGIN(sync, local_sgd, LocalSgdConfig, LocalSgd)
