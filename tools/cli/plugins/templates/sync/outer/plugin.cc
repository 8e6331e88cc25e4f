// Sparse DiLoCo, to start from: ranks train with separate values, and send the largest entries of what has changed
// since the last exchange. See lmx/replica_strategy.h for what the base does, lmx/vectors.h for functions.
#include <cmath>

#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

// The keys of a rule `{params: ".*", strategy: @name@, ...}` in a recipe's `sync:`.
struct @Name@Config {
  double keep = 0.1;
  lmx::OuterConfig outer{.every = 50};
  void fields(lmx::Fields& f) {
    f.field("keep", keep, "part of the changes that a rank sends in an exchange", {0, 1, true});
    outer.fields(f);
  }
  void check(const std::string& where) const { outer.check(where); }
  lmx::Traits traits() const { return outer.traits(); }
};

class @Name@ : public lmx::OuterStrategy {
 public:
  @Name@(const @Name@Config& c, const lmx::SyncEnv& env) : OuterStrategy(c.outer, env), keep_(c.keep) {}

 private:
  // Returns the sum over ranks of what they send of their changes, and keeps the rest for the next exchange.
  lmx::Tensor sum_of_changes(lmx::Context& ctx, lmx::Fragment& f, lmx::Tensor change) override {
    const auto k = static_cast<int64_t>(std::ceil(keep_ * static_cast<double>(f.size)));
    if (f.kept.defined()) lmx::add_scaled(ctx, change, 1, f.kept);
    f.kept = change;
    return lmx::gather_entries(ctx, lmx::take_largest(ctx, change, k), f.size, env().group);
  }
  double keep_;
};

LMX_PLUGIN(sync, @name@, @Name@Config, @Name@)
