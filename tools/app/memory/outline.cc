#include "app/memory/outline.h"

#include "data/data_config.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"

namespace lmx {

Outline outline_of(const Recipe& r, int ranks, int ranks_per_node) {
  Outline o;
  o.network = train::make_network(r, data::vocabulary_size(r.data), nullptr);
  train::check_patterns(r, o.network.specs);
  o.batch = train::planned_batcher(r.batcher)->plan();
  o.shares = shares_of(r, o.batch, ranks);
  o.sync = make_exchanger(r.sync, "sync", SyncEnv{"", o.network.specs, 0, ranks, RandomKey(), ranks_per_node});
  o.sync->check_loss(*o.network.loss);
  o.sync->check_directions(read_clip(r.clip, "clip"), r.precision == "fp16");
  return o;
}

}  // namespace lmx
