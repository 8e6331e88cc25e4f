// Gradient-sync strategies: the exchange between ranks after backward and before the update.
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

namespace lmx {

// The sizes that determine one rank's traffic for a unit of parameters; expected_bytes() is a function of them alone.
struct Traffic {
  int rank = 0, ranks = 1;
  int ranks_per_node = ranks;  // nodes are consecutive ranks
  struct Dense {
    int64_t rows = 0, width = 1;  // of the parameter: (rows, width), or (rows) with width 1
    // If only some rows are exchanged, the same on all ranks: the number of these rows with an index that is r modulo
    // the number of ranks, for each r. Empty: all rows are exchanged.
    std::vector<int64_t> owned = {};
  };
  std::vector<Dense> dense;  // parameters of the unit with dense gradients
  // A row-sparse gradient, or a table of which a strategy sends some rows: (vocabulary, width). `indices`: for each
  // rank, the number of indices that backward produced (if rows are selected, of the selected ones). `unique`: the same
  // without repetitions. `union_rows`: rows of the union over ranks.
  struct Sparse {
    int64_t vocabulary = 0, width = 1;
    std::vector<int64_t> indices, unique;
    int64_t union_rows = 0;
    // Rows of the union by index modulo ranks: the rows that each rank sums (one_bit). Empty: as if divided evenly.
    std::vector<int64_t> owned;
    // Rows that rank r exchanges with rank s, [r][s]. one_bit: by index modulo ranks. Server: `pushed` are the rows
    // that r sends to, and `pulled` the rows that it requests from, rank s's part of the table (chunk_begin). If
    // `pushed` is empty, rows count as divided evenly; if `pulled` is empty, all rows are pulled.
    std::vector<std::vector<int64_t>> pushed = {}, pulled = {};
  };
  std::vector<Sparse> sparse;
};

// Estimated numbers of rows of a table in a step: `raw`, on one rank as backward produces them; `own`, the different
// ones among them; `all`, those of all ranks together. `words`: how often a rank looks up or predicts a word, without
// the candidates that a loss samples.
struct TableRows {
  int64_t raw = 0, own = 0, all = 0, words = 0;
};

// Bytes on a rank: sums of gradients, and data gathered from all ranks that is kept with them until the update.
struct KeptBytes {
  int64_t sums = 0, gathered = 0;
};

// Bytes that a rank sends in a step, and the part of them that crosses nodes.
struct SentBytes {
  int64_t all = 0, between_nodes = 0;
};

class SyncStrategy;
class ServerStrategy;

// How a strategy uses the key of a sampled softmax's candidates (StepPlan::sampler_key).
enum class CandidateKey : uint8_t {
  left,   // does not change it
  set,    // sets it
  needed  // sets it, and has no effect if the loss samples no candidates
};

// The bytes and the memory of an exchange, as functions of sizes alone: for the ledger's check and for plans.
class LMX_API TrafficModel {
 public:
  virtual ~TrafficModel();
  // Bytes that this rank sends to rank `to`, another one, for a unit in a step, in all collectives together.
  virtual int64_t expected_bytes(const Traffic& traffic, int to) const = 0;
  // The bytes that this rank sends to all other ranks, from expected_bytes().
  SentBytes sent_bytes(const Traffic& traffic) const;
  // The collectives, one after the other, in which a rank sends them: each costs the latency of its messages. Default:
  // 2 for each dense parameter (a sum) and 4 for each table (numbers of rows, indices, rows and their sums).
  virtual int64_t collectives(const Traffic& traffic) const;
  // Bytes of this rank's memory that it reads and writes beside its collectives: to encode, add and decode. Default:
  // what is sent is read and what is received is written, and the sums are read and written once.
  virtual int64_t moved_bytes(const Traffic& traffic) const;
  // Adds to `unit` the expected exchange for a parameter, given the rows that each rank's backward produces (for a
  // dense gradient only `touched.words` is meaningful). Default: all rows of a dense gradient, and the produced rows of
  // a row-sparse one.
  virtual void plan(Traffic& unit, const ParameterSpec& spec, const TableRows& touched) const;
  // Bytes of a unit that are kept from reduce() until the update. Default: its sums; for a table the rows of the union
  // over ranks, for a matrix the exchanged rows.
  virtual KeptBytes kept_bytes(const Traffic& traffic) const;
  // Bytes that a rank keeps for each other rank while it exchanges gradients. Default: sizes and places of the parts
  // that an encoded exchange divides a gradient into (measured with 1,000 and 2,000 ranks of one_bit).
  virtual int64_t pair_bytes() const;
};

// The reports of a rule to its user. The defaults report nothing.
class LMX_API SyncReport {
 public:
  virtual ~SyncReport();
  // Warnings to print about settings that lose information. `loss_scaled`: see SyncRules::warnings().
  virtual std::vector<std::string> warnings(bool loss_scaled) const;
  // One line that is printed when a run starts ("14 seed groups of 4 or 5 ranks"); "" for none.
  virtual std::string describe(int ranks) const;
  // Quantisation error since the last call, by parameter.
  virtual std::map<std::string, CodecHealth> take_health();
  // take_values(): further values for a record of the metrics, since the last call. summary(): a line that is printed
  // when a run ends ("": none).
  virtual std::vector<std::pair<std::string, double>> take_values();
  virtual std::string summary() const;
};

// The work of one rule of `sync:` on the parameters that it matches. Each rank has its own object. It is either a
// SyncStrategy, whose ranks are in step, or a ServerStrategy (lmx/param_server.h).
class LMX_API SyncRule : public TrafficModel, public SyncReport {
 public:
  // Called before the forward pass with this rank's share of the step's batch, to choose candidates, rows, and
  // parameters to pull.
  virtual void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan);
  // Whether begin_step() sets the rows of `param` for the loss (StepPlan::rows).
  virtual bool plans_rows(const std::string& param) const;
  virtual CandidateKey candidate_key() const;
  // The number of different candidate sets that `ranks` ranks sample in a step, for plans. Default: 1, the same on all
  // ranks.
  virtual int64_t candidate_sets(int ranks) const;
  virtual void after_step(Context& ctx);
  // Called before after_step() if the update is skipped (an overflow, a divergence): nothing of this step's gradients
  // may be added to later ones.
  virtual void discard();
  // From now on gradients are `factor` times as large, because a loss scale has changed. The strategy must multiply the
  // residuals of earlier gradients by `factor`.
  virtual void rescale(double factor);
  // The state of this rank for a checkpoint. load() gets the states of all ranks that saved, in rank order; UserError
  // if this number of ranks cannot resume from them.
  virtual StateDict state() const;
  virtual void load(Context& ctx, const std::vector<StateDict>& ranks);
  // This object as one of the two kinds; null if it is of the other kind.
  virtual SyncStrategy* strategy() { return nullptr; }
  virtual ServerStrategy* server() { return nullptr; }
};

// The exchange of ranks that are in step: gradients are summed before every update, which all ranks then make alike.
class LMX_API SyncStrategy : public SyncRule {
 public:
  // Divides parameters into units; the gradients of a unit are exchanged together. `params` are in the order in which
  // backward finishes them, which is the reverse of their declaration. Default: each parameter separately.
  virtual std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const;
  // Replaces this rank's gradients of one unit by their sum over all ranks. Collective: all ranks call it for the same
  // units in the same order. It may run on a second thread while backward computes other parameters. A gradient may be
  // empty on a rank (no sequences); that rank still takes part. The result must not be written to.
  virtual void reduce(Context& ctx, std::span<Var> unit) = 0;
  // After begin_step(): the rows of a parameter that this rank sends in this step, ascending; other rows count as zero.
  // For a dense gradient they are the same on all ranks. Null: all rows that backward has produced.
  virtual const std::vector<int32_t>* selected_rows(const std::string& param) const;
  SyncStrategy* strategy() final { return this; }
};

struct SyncEnv {
  std::string group;                  // the rule's key in `sync:`
  std::vector<ParameterSpec> params;  // the parameters that it matched, in order of declaration
  int rank = 0, ranks = 1;
  RandomKey key;               // of the run, specific to this rule
  int ranks_per_node = ranks;  // 0: nodes have different numbers of ranks
};
using SyncFactory = std::unique_ptr<SyncRule> (*)(const Node& config, const std::string& path, const SyncEnv& env);

}  // namespace lmx
