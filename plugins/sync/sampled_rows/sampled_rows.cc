// Sampled data transmission (Xiao 2017, section 3). In each step only selected rows of each parameter are
// exchanged; other rows are neither sent nor updated.
//
//   softmax     the rows of the targets of this rank's share, of the p percent most frequent words and of q percent
//               random words
//   embedding   the rows of the words that are read: the inputs and, in a translation, the source sentences
//   tied        a table that is also the output layer's: the rows of both
//   hidden      hidden_q percent of the rows of a matrix, at random
//   others      all rows: vectors, and tables that neither pattern matches
//
// With `allreduce` ranks are synchronous. The selected rows of gradients are packed into one block and summed over the
// union of the ranks' rows; hidden rows are the same on all ranks, so their indices are not exchanged. With
// `param_server` each worker pulls the selected rows of values and pushes those of gradients.
#include "lmx/error.h"
#include "lmx/param_server.h"
#include "lmx/plugin.h"
#include "lmx/row_sampling.h"
#include "lmx/row_sync.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;
using Kind = RowSelector::Kind;

struct SampledRowsConfig : RowRule {
  std::string transport = "allreduce";
  double bucket_mb = 150;
  ServerConfig server;  // its codec is used with either transport
  void fields(Fields& f) {
    RowRule::fields(f);
    f.choice("transport", transport, {"allreduce", "param_server"},
             "allreduce: the sum over ranks that go in step; param_server: workers pull and push rows of a server");
    f.field(
        "bucket_mb", bucket_mb,
        "allreduce: megabytes, as sent, of complete gradients that share one message; 0: one message for each gradient",
        kNonNegative);
    server.fields(f);
  }
  void check(const std::string& where) const {
    RowRule::check(where);
    if (transport == "param_server") {
      server.check(where);
      if (bucket_mb != SampledRowsConfig().bucket_mb)
        throw UserError(str(where,
                            ".bucket_mb: a worker's push is one message to each shard, and buckets are for "
                            "transport: allreduce; leave it out"));
      return;
    }
    server.codec.check(where);
    if (server.traits() != ServerConfig().traits())
      throw UserError(
          str(where,
              ": delay, schedule and replay are a server's, and with transport: allreduce ranks go in step; "
              "leave them out, or give transport: param_server"));
  }
  Traits traits() const { return transport == "param_server" ? server.traits() : Traits(); }
};

// `hidden_rank`: see RowSelector::begin_step().
void select_for(RowSelector& selector, int rank, int hidden_rank, std::span<const Batch> share, StepPlan& plan) {
  std::vector<int32_t> inputs, targets, source;
  const auto append = [](std::vector<int32_t>& all, const Tensor& words) {
    if (words.defined()) all.insert(all.end(), words.values<int32_t>().begin(), words.values<int32_t>().end());
  };
  for (const Batch& batch : share) {
    append(inputs, batch.inputs);
    append(targets, batch.targets);
    append(source, batch.source);
  }
  selector.begin_step(plan, rank, hidden_rank, inputs, targets, source);
}

CandidateKey key_of(const RowSelector& selector) {
  return selector.sets_candidate_key() ? CandidateKey::set : CandidateKey::left;
}

// Marks as tables all parameters that are exchanged by rows.
std::vector<ParameterSpec> with_tables(std::vector<ParameterSpec> params, const RowSelector& selector) {
  for (ParameterSpec& p : params) {
    const Kind kind = selector.kind(p.name);
    p.sparse = p.sparse || kind == Kind::softmax || kind == Kind::hidden;
  }
  return params;
}

class SummedRows final : public SumStrategy {
 public:
  SummedRows(const SampledRowsConfig& config, const SyncEnv& env, RowSelector selector)
      : SumStrategy(
            SumConfig{.codec = config.server.codec, .bucket_mb = config.bucket_mb},
            SyncEnv{env.group, with_tables(env.params, selector), env.rank, env.ranks, env.key, env.ranks_per_node}),
        selector_(std::move(selector)) {}

  std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const override {
    return SumStrategy::units(with_tables(params, selector_));
  }
  void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan) override {
    select_for(selector_, ctx.rank, 0, share, plan);
  }
  const std::vector<int32_t>* selected_rows(const std::string& param) const override {
    const Kind kind = selector_.kind(param);
    return kind == Kind::softmax || kind == Kind::hidden ? &selector_.rows(param) : nullptr;
  }
  bool plans_rows(const std::string& param) const override { return selector_.kind(param) == Kind::softmax; }
  std::string describe(int) const override { return selector_.describe(); }
  CandidateKey candidate_key() const override { return key_of(selector_); }

 protected:
  void reduce_table(Context& ctx, Var& param) override {
    const Kind kind = selector_.kind(param.name());
    if (kind == Kind::hidden) return reduce_hidden(ctx, param);
    if (kind == Kind::softmax) select(ctx, param);
    SumStrategy::reduce_table(ctx, param);
  }

 private:
  // Reduces a gradient to the selected rows, in one piece.
  void select(Context& ctx, Var& param) const {
    Gradient& grad = param.grad();
    if (grad.empty()) return;
    grad.coalesce(ctx);
    RowSparse own = pack_rows(ctx, rows_of(ctx, grad, param.value()), selector_.rows(param.name()));
    grad.clear();
    grad.pieces.push_back(std::move(own));
  }

  // All ranks send the same rows, with zeros for rows without a gradient.
  void reduce_hidden(Context& ctx, Var& param) {
    Gradient& grad = param.grad();
    if (ctx.comm->size() == 1 && grad.empty()) return;
    select(ctx, param);
    const std::vector<int32_t>& rows = selector_.rows(param.name());
    RowSparse own = rows_of(ctx, grad, param.value());
    grad.clear();
    if (rows.empty()) return;
    own = {rows, spread_rows(ctx, own, rows), true};
    const Tensor sum = reducer().reduce_rows(ctx, param.name(), std::move(own), rows, nullptr);
    grad.pieces.push_back({rows, sum, true});
  }

  RowSelector selector_;
};

class ServedRows final : public ServerStrategy {
 public:
  ServedRows(const SampledRowsConfig& config, const SyncEnv& env, RowSelector selector)
      : ServerStrategy(config.server, env), selector_(std::move(selector)) {}
  std::string describe(int ranks) const override {
    const std::string server = ServerStrategy::describe(ranks);
    return str(server, server.empty() ? "" : "; ", selector_.describe());
  }
  bool plans_rows(const std::string& param) const override { return selector_.kind(param) == Kind::softmax; }
  CandidateKey candidate_key() const override { return key_of(selector_); }

 protected:
  std::map<std::string, std::vector<int32_t>> choose_rows(Context& ctx, std::span<const Batch> share,
                                                          StepPlan& plan) override {
    select_for(selector_, ctx.rank, ctx.rank, share, plan);
    std::map<std::string, std::vector<int32_t>> rows;
    for (const ParameterSpec& p : env().params)
      if (selector_.kind(p.name) != Kind::whole) rows.emplace(p.name, selector_.rows(p.name));
    return rows;
  }

 private:
  RowSelector selector_;
};

std::unique_ptr<SyncRule> make_sampled_rows(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<SampledRowsConfig>(config, path);
  RowSelector selector(c, env.params, env.key);
  selector.check(path);
  if (c.transport == "param_server") return std::make_unique<ServedRows>(c, env, std::move(selector));
  return std::make_unique<SummedRows>(c, env, std::move(selector));
}

}  // namespace

LMX_PLUGIN(sync, sampled_rows, SampledRowsConfig, make_sampled_rows)
