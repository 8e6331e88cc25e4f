// Ranks with separate values and an outer optimizer that changes its state in place. The field `fault` breaks one
// promise.
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct Config {
  int64_t fault = 0;
  void fields(Fields& f) { f.field("fault", fault, "the promise that is broken; 0: none", kNonNegative); }
  Traits traits() const { return fault == 1 ? Traits() : Traits{{trait::kReplicas, "true"}}; }
};

class TestSync final : public ReplicaStrategy {
 public:
  TestSync(const Config& c, const SyncEnv& env) : ReplicaStrategy(env), c_(c) {}
  Rhythm rhythm(int64_t) const override { return {3}; }
  Tensor exchange(Context& ctx, Fragment& f) override {
    add_scaled(ctx, f.own, -1, f.anchor);
    return ctx.comm->all_reduce(f.own, env().group);
  }
  Merged merge(Context& ctx, Fragment& f, const Tensor& sum) override {
    const Tensor next = ctx.comm->once_tensor(MemClass::communication, [&] {
      if (!momentum_.defined()) momentum_ = ctx.zeros({f.size});
      add_scaled(ctx, momentum_, 1 / static_cast<float>(ctx.ranks), sum);
      Tensor anchor = f.anchor.clone(MemClass::communication);
      add_scaled(ctx, anchor, 0.5f, momentum_);
      return anchor;
    });
    return {next, next};
  }
  StateDict common_state() const override {
    if (c_.fault == 2 || !momentum_.defined()) return {};
    return {{"momentum", momentum_}};
  }
  void load_common(Context& ctx, const StateDict& state) override {
    if (!state.empty()) momentum_ = ctx.upload(state.at("momentum")).clone(MemClass::optimizer);
  }

 private:
  Config c_;
  Tensor momentum_;
};

std::unique_ptr<SyncRule> make(const Node& config, const std::string& path, const SyncEnv& env) {
  return std::make_unique<TestSync>(read_config<Config>(config, path), env);
}

}  // namespace

LMX_PLUGIN(sync, test_sync, Config, make)
