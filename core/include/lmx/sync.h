// Gradient-sync strategies: what ranks exchange between backward and update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/codec.h"
#include "lmx/comm.h"
#include "lmx/loss.h"
#include "lmx/optim.h"
#include "lmx/parameters.h"
#include "lmx/step_plan.h"

namespace lmx {

// What one rank's traffic for a unit of parameters depends on; expected_bytes() is a function of it alone.
struct Traffic {
  int rank = 0, ranks = 1;
  struct Dense {
    int64_t rows = 0, width = 1;  // of the parameter: (rows, width), or (rows) with width 1
    // Where only some of its rows travel, the same on all ranks: how many of them have an index that is r modulo the
    // number of ranks. Empty: all rows travel.
    std::vector<int64_t> owned = {};
  };
  std::vector<Dense> dense;  // parameters of the unit with dense gradients
  // A row-sparse gradient, or a table of which a strategy sends rows: (vocabulary, width); indices of each rank as
  // backward left them (where rows are selected, those that were), and without repetition; rows of the union over
  // ranks.
  struct Sparse {
    int64_t vocabulary = 0, width = 1;
    std::vector<int64_t> indices, unique;
    int64_t union_rows = 0;
    // Rows of the union by index modulo ranks: who sums them (one_bit). Empty: as if divided evenly.
    std::vector<int64_t> owned;
    // Rows of rank r by who gets them, [r][s]: by index modulo ranks (one_bit), or on a server those that it sends to,
    // and asks of, rank s's part of the table (chunk_begin). Without `pushed` as if divided evenly, without `pulled`
    // all rows come.
    std::vector<std::vector<int64_t>> pushed = {}, pulled = {};
  };
  std::vector<Sparse> sparse;
};

// Rows of a table that a step touches, as a plan expects them: of one rank as backward leaves them, the different ones
// of them, and those of all ranks together. `words`: how often a rank looks a word up or predicts one, whatever a loss
// draws beside them.
struct TableRows {
  int64_t raw = 0, own = 0, all = 0, words = 0;
};

// Bytes on a rank: sums of gradients, and what has been gathered from all ranks and lives on beside them.
struct KeptBytes {
  int64_t sums = 0, gathered = 0;
};

class ServerStrategy;

// What a strategy does with the key of a sampled softmax's candidates (StepPlan::sampler_key).
enum class CandidateKey : uint8_t {
  left,   // nothing
  set,    // sets it
  needed  // sets it, and is pointless where the loss draws no candidates
};

// One strategy serves the parameters that its rule in `sync:` matched; each rank has its own.
class LMX_API SyncStrategy {
 public:
  virtual ~SyncStrategy();
  // Parameters whose gradients travel together. `params` come in the order in which backward finishes them, which is
  // the reverse of their declaration. Default: each alone.
  virtual std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const;
  // Before the forward, with this rank's share of the step's batch: candidates, rows, parameters to pull.
  virtual void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan);
  // After begin_step(): the rows of a parameter that this rank sends in this step, ascending; others count as zero. Of
  // a dense gradient they are the same on all ranks. Null: all that backward has touched.
  virtual const std::vector<int32_t>* selected_rows(const std::string& param) const;
  // Whether begin_step() names the rows of `param` for the loss (StepPlan::rows).
  virtual bool plans_rows(const std::string& param) const;
  // The gradients of one unit, from this rank's own to the sum over all ranks. Collective: all ranks call it for the
  // same units in the same order, perhaps on a second thread while backward goes on with other parameters. A gradient
  // may be empty on a rank (no sequences); it still takes part. What comes out is not written to.
  virtual void reduce(Context& ctx, std::span<Var> unit) = 0;
  // True: the strategy itself clips and updates the parameter (a server does).
  virtual bool owns_update(const Var& param) const;
  virtual void after_step(Context& ctx);
  // Before after_step(): the update is left out (an overflow, a divergence), so nothing of this step's gradients may
  // come with later ones.
  virtual void discard();
  // From here on gradients come `factor` times as large (a loss scale has changed): what is kept of earlier ones
  // follows.
  virtual void rescale(double factor);
  // False: ranks' values may differ (stale replicas), so ranks of one process cannot share them.
  virtual bool replicated() const;
  // What a checkpoint must keep of this rank. load() gets the states of all ranks that saved, in rank order; UserError
  // where another number of ranks cannot go on from them.
  virtual StateDict state() const;
  virtual void load(Context& ctx, const std::vector<StateDict>& ranks);
  // Bytes that this rank sends in reduce() for a unit, in all collectives.
  virtual int64_t expected_bytes(const Traffic& traffic) const = 0;
  // Adds to `unit` what travels of a parameter where each rank's backward touches the rows of `touched` (of dense
  // gradients only its `words` tell anything). Default: all rows of a dense gradient, and those that were touched of a
  // row-sparse one.
  virtual void plan(Traffic& unit, const ParameterSpec& spec, const TableRows& touched) const;
  // What reduce() leaves of a unit until the update. Default: its sums, of a table the rows that any rank has touched,
  // of a matrix the rows that travel.
  virtual KeptBytes kept_bytes(const Traffic& traffic) const;
  // Bytes that a rank keeps for each other rank while it exchanges gradients. Default: sizes and places of the parts
  // that an encoded exchange divides a gradient into (measured with 1,000 and 2,000 ranks of one_bit).
  virtual int64_t pair_bytes() const;
  // Lines for people about settings that lose information. `loss_scaled`: see SyncRules::warnings(). Default: none.
  virtual std::vector<std::string> warnings(bool loss_scaled) const;
  // One line for people when a run starts ("14 seed groups of 4 or 5 ranks"); "" for none.
  virtual std::string describe(int ranks) const;
  // Losses of its codec since the last call, by parameter.
  virtual std::map<std::string, CodecHealth> take_health();
  // What else a record of the metrics says of it, since the last call; and a line for people when a run ends ("":
  // none).
  virtual std::vector<std::pair<std::string, double>> take_values();
  virtual std::string summary() const;
  virtual CandidateKey candidate_key() const;
  // How many different sets of candidates `ranks` ranks draw in a step: for plans. Default: one, the same on all ranks.
  virtual int64_t candidate_sets(int ranks) const;
  // Not null: ranks do not go in step, and no reduce() is called (lmx/param_server.h).
  virtual ServerStrategy* server();
};

struct SyncEnv {
  std::string group;                  // the rule's key in `sync:`
  std::vector<ParameterSpec> params;  // what it matched, in order of declaration
  int rank = 0, ranks = 1;
  RandomKey key;  // of the run, for this rule
};
using SyncFactory = std::unique_ptr<SyncStrategy> (*)(const Node& config, const std::string& path, const SyncEnv& env);

}  // namespace lmx
