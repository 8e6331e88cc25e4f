// Ranks that divide the update, to start from: each rank owns whole parameters, whatever the optimizer needs. See
// lmx/shard_strategy.h for what the base does; override reduce_scatter() or gather() for another exchange.
#include "lmx/plugin.h"
#include "lmx/shard_strategy.h"

// The keys of a rule `{params: ".*", strategy: @name@, ...}` in a recipe's `sync:`.
struct @Name@Config {
  lmx::ShardConfig shard;
  void fields(lmx::Fields& f) { shard.fields(f); }
  lmx::Traits traits() const { return shard.traits(); }
};

class @Name@ : public lmx::ShardStrategy {
 public:
  @Name@(const @Name@Config& c, const lmx::SyncEnv& env) : ShardStrategy(c.shard, env) {}
  lmx::OwnersOf owners(const std::set<std::string>&) const override {
    std::vector<int64_t> load(static_cast<size_t>(env().ranks));
    return lmx::whole_owners(env().params, load);
  }
};

LMX_PLUGIN(sync, @name@, @Name@Config, @Name@)
