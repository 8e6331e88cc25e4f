// The sum of gradients over ranks, to start from: dense ones by all_reduce, those of tables by gathering the rows that
// any rank has. See lmx/sync.h for what each function promises, lmx/comm.h for what ranks can exchange.
#include <set>

#include "lmx/plugin.h"
#include "lmx/sync.h"

namespace {

// The keys of a rule `{params: ".*", strategy: @name@, ...}` in a recipe's `sync:`.
struct @Name@Config {
  double scale = 1;
  void fields(lmx::Fields& f) { f.field("scale", scale, "what a table's summed gradient is multiplied by", {0, 1e6, true}); }
};

class @Name@ : public lmx::SyncStrategy {
 public:
  @Name@(const @Name@Config& config, const lmx::SyncEnv& env) : c_(config), group_(env.group) {
    for (const lmx::ParameterSpec& p : env.params)
      if (p.sparse) tables_.insert(p.name);
  }

  // All ranks call it for the same parameters in the same order. A rank without sequences has no gradient: it takes part.
  void reduce(lmx::Context& ctx, std::span<lmx::Var> unit) override {
    for (lmx::Var& param : unit) tables_.contains(param.name()) ? reduce_table(ctx, param) : reduce_dense(ctx, param);
  }

 private:
  void reduce_dense(lmx::Context& ctx, lmx::Var& param) {
    lmx::Gradient& g = param.grad();
    if (!g.dense.defined()) g.dense = ctx.zeros(param.shape(), lmx::DType::f32, lmx::MemClass::gradients);
    g.dense = ctx.comm->all_reduce(g.dense, group_);
  }

  void reduce_table(lmx::Context& ctx, lmx::Var& param) {
    lmx::Gradient& g = param.grad();
    lmx::Shape none = param.shape();
    none[0] = 0;
    lmx::RowSparse own{{}, ctx.empty(none, lmx::DType::f32, lmx::MemClass::gradients), true};
    if (g.sparse()) own = lmx::coalesce(ctx, g.pieces);  // each row once
    const lmx::Tensor ids =
        lmx::Tensor::from<int32_t>(ctx.host, {static_cast<int64_t>(own.indices.size())}, own.indices);
    const lmx::Tensor all_ids = ctx.comm->all_gather(ids, group_), all_rows = ctx.comm->all_gather(own.rows, group_);
    g.clear();
    if (all_ids.numel() == 0) return;
    const auto indices = all_ids.values<int32_t>();
    // Rows of equal index are added in the order of ranks, so that every rank has the same bits.
    lmx::RowSparse sum = lmx::coalesce(ctx, {{{indices.begin(), indices.end()}, all_rows, false}});
    if (c_.scale != 1)
      for (float& v : sum.rows.values<float>()) v *= static_cast<float>(c_.scale);
    g.pieces.push_back(std::move(sum));
  }

  @Name@Config c_;
  std::string group_;             // of the ledger
  std::set<std::string> tables_;  // parameters whose gradients are row-sparse
};

}  // namespace

LMX_PLUGIN(sync, @name@, @Name@Config, @Name@)
