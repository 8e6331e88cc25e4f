// Gradient-sync strategies: what ranks exchange between backward and update.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/comm.h"
#include "lmx/optim.h"
#include "lmx/parameters.h"

namespace lmx {

// What a strategy decides for a step before its forward; losses and models read it.
struct StepPlan {
  int64_t step = 0;
  RandomKey sampler_key;  // of the sampled softmax: equal keys draw equal candidates
};

// One strategy serves the parameters that its rule in `sync:` matched.
class LMX_API SyncStrategy {
 public:
  virtual ~SyncStrategy();
  virtual void begin_step(Context& ctx, StepPlan& plan) = 0;
  // Once per parameter and step, after its last use in the last sub-batch's backward.
  virtual void grad_ready(Context& ctx, const Var& param) = 0;
  virtual void before_step(Context& ctx) = 0;  // gradients are complete and equal on all ranks when this returns
  virtual bool owns_update(const Var& param) const = 0;  // true: the strategy itself clips and updates it
  virtual void after_step(Context& ctx) = 0;
  virtual StateDict state() const = 0;
  virtual void load(const StateDict& state) = 0;
  // Bytes that one rank sends in a step for a dense parameter of `elements`, or for `rows` x `width` of a sparse one.
  virtual int64_t expected_bytes(int64_t ranks, int64_t elements) const = 0;
};

struct SyncEnv {
  std::string group;                // the rule's key in `sync:`
  std::vector<std::string> params;  // what it matched
};
using SyncFactory = std::unique_ptr<SyncStrategy> (*)(const Node& config, const std::string& path, const SyncEnv& env);

// `sync:` of a recipe: rules by name, each {params: regex, strategy: name, ...}; the first match wins.
// UserError: an uncovered parameter, a rule that matches nothing.
class LMX_API SyncRules {
 public:
  SyncRules(const Node& sync, const std::string& path, const std::vector<std::string>& params);
  ~SyncRules();
  SyncRules(const SyncRules&) = delete;
  void begin_step(Context& ctx, StepPlan& plan);
  void grad_ready(Context& ctx, const Var& param);
  void before_step(Context& ctx);
  bool owns_update(const Var& param) const;
  void after_step(Context& ctx);
  StateDict state() const;
  void load(const StateDict& state);
  static Node full_config(const Node& sync, const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
