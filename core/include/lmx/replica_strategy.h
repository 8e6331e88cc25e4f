// Ranks whose values differ between synchronisations: local SGD, DiLoCo and their kin.
//
// Each rank has its own values and its own state of the recipe's optimizer for the parameters of the rule. Its gradient
// is the mean over its part of a batch, and it updates its values without the other ranks. At times the ranks exchange
// a fragment of the parameters and continue from new values. Validations, checkpoints and the end of a run use the
// anchors: the values that the last synchronisation has given all ranks; or, if the ranks gossip and so have different
// anchors, their mean.
#pragma once

#include <string>
#include <vector>

#include "lmx/sync.h"

namespace lmx {

// When a fragment is exchanged: after the steps offset + k period, k >= 1, whether or not their updates were left out.
// The result is merged `delay` steps later. REQUIRES: 0 <= offset < period, 0 <= delay < period.
struct Rhythm {
  int64_t period = 1, offset = 0, delay = 0;
};

// Parameters that are synchronised together, as vectors (size): one after the other, in order of declaration.
struct Fragment {
  int64_t index = 0;  // of the rule's fragments
  int64_t size = 0;   // elements
  std::vector<std::string> names = {};
  Tensor own = {};  // f32: a copy of this rank's values, which exchange() and merge() may overwrite
  // f32: the values after the last synchronisation, equal on all ranks unless they gossip. Not to be written to.
  Tensor anchor = {};
  int64_t round = 0;  // number of earlier exchanges of the fragment
  // f32: a tensor that exchange() or merge() leaves for the fragment's next exchange; undefined at first. It differs
  // between ranks. Checkpoints contain it; another number of ranks shares the sum over ranks equally.
  Tensor kept = {};
};

class LMX_API ReplicaStrategy : public SyncRule {
 public:
  explicit ReplicaStrategy(SyncEnv env);
  const SyncEnv& env() const { return env_; }
  // Divides the rule's parameters, each of which belongs to one fragment. Default: all of them in one.
  virtual std::vector<std::vector<std::string>> fragments() const;
  virtual Rhythm rhythm(int64_t fragment) const = 0;
  // Collective. Exchanges a fragment. Returns what merge() needs, of any shape; it may be shared. With a delay, and if
  // the recipe has no other kind of rule, it may run on a second thread while this rank makes its next steps. No other
  // function of the strategy runs at the same time.
  virtual Tensor exchange(Context& ctx, Fragment& f) = 0;
  // Collective, `delay` steps later, with the values of that step. Returns the new values of this rank, which may be
  // the new anchor, and the new anchor, equal on all ranks unless they gossip. Both (size).
  struct Merged {
    Tensor own, anchor;
  };
  virtual Merged merge(Context& ctx, Fragment& f, const Tensor& received) = 0;
  // Whether the anchors of ranks differ. Then each rank keeps its own, and the mean over ranks is used for validations,
  // checkpoints and the end of a run: one all_reduce of each fragment, in the ledger's group "publish".
  virtual bool gossips() const { return false; }
  std::string describe(int ranks) const override;
  ReplicaStrategy* replica() final { return this; }

 private:
  SyncEnv env_;
};

// Keys of strategies that average the changes of ranks and make a step of an outer optimizer with the mean.
struct LMX_API OuterConfig {
  int64_t every = 500;    // steps between two exchanges of a fragment
  int64_t fragments = 1;  // parts of about equal size, exchanged one after the other at equal distances
  int64_t delay = 0;      // steps between an exchange and the use of its result
  double mix = 0;         // part of a rank's own values that it keeps
  double outer_lr = 0.7;  // of SGD, the outer optimizer
  double outer_momentum = 0.9;
  bool outer_nesterov = true;
  CodecConfig codec = {};  // of the changes
  void fields(Fields& f);
  void check(const std::string& where) const;
  Traits traits() const;
};

// DiLoCo (Douillard et al. 2023, algorithm 1) and streaming DiLoCo (Douillard et al. 2025). With the anchor a, the
// values p_r of rank r and G ranks, the outer gradient is the mean over ranks of a - p_r. SGD with Nesterov's momentum
// makes a step with it from a, which gives the new anchor a'. Each rank continues from mix p_r + (1 - mix) a', with the
// values p_r of the step in which the result is merged.
class LMX_API OuterStrategy : public ReplicaStrategy {
 public:
  OuterStrategy(const OuterConfig& config, const SyncEnv& env);
  ~OuterStrategy() override;
  std::vector<std::vector<std::string>> fragments() const override;
  Rhythm rhythm(int64_t fragment) const override;
  Tensor exchange(Context& ctx, Fragment& f) override;
  Merged merge(Context& ctx, Fragment& f, const Tensor& received) override;
  StateDict common_state() const override;
  void load_common(Context& ctx, const StateDict& state) override;
  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;
  std::vector<std::string> warnings(bool loss_scaled) const override;
  std::map<std::string, CodecHealth> take_health() override;

 protected:
  // Collective. The sum over ranks of their changes p_r - a (size). Default: with the codec.
  virtual Tensor sum_of_changes(Context& ctx, Fragment& f, Tensor change);
  const OuterConfig& config() const { return config_; }

 private:
  struct Impl;
  OuterConfig config_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
