#include "lmx/sum_strategy.h"

#include <utility>

#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx {
namespace {

constexpr const char* kUpdates = "@updates";  // no parameter has such a name

}  // namespace

SumStrategy::SumStrategy(SumConfig config, SyncEnv env)
    : config_(std::move(config)), env_(std::move(env)), reducer_(config_.codec, env_.group, config_.levels) {
  for (const ParameterSpec& p : env_.params)
    if (p.sparse) tables_.insert(p.name);
}

std::vector<std::vector<std::string>> SumStrategy::units(const std::vector<ParameterSpec>& params) const {
  return buckets(params, config_.bucket_mb);
}

std::vector<std::vector<std::string>> SumStrategy::buckets(const std::vector<ParameterSpec>& params,
                                                           double bucket_mb) const {
  return buckets_of(params, bucket_mb,
                    [this](const ParameterSpec& p) { return reducer_.codec().bytes(p.shape[0], row_width(p.shape)); });
}

void SumStrategy::reduce(Context& ctx, std::span<Var> unit) {
  if (unit.size() == 1 && tables_.contains(unit[0].name())) return reduce_table(ctx, unit[0]);
  for (const Var& p : unit) LMX_CHECK(!tables_.contains(p.name()), p.name(), " travels alone");
  reduce_dense(ctx, unit, reducer_);
}

void SumStrategy::reduce_dense(Context& ctx, std::span<Var> params, Reducer& reducer) {
  std::vector<Reducer::Block> blocks;
  std::vector<Var> present;
  for (Var& p : params) {
    if (ctx.comm->size() == 1 && p.grad().empty()) continue;
    blocks.push_back({p.name(), dense_of(ctx, p.grad(), p.value())});
    p.grad().clear();  // frees the gradient as soon as the block is encoded or sent
    present.push_back(p);
  }
  const std::vector<Tensor> sums = reducer.reduce(ctx, blocks);
  for (size_t i = 0; i < present.size(); ++i) present[i].grad().dense = sums[i];
}

void SumStrategy::reduce_table(Context& ctx, Var& param) {
  Gradient& grad = param.grad();
  if (ctx.comm->size() == 1 && grad.empty()) return;
  RowSparse raw = rows_of(ctx, grad, param.value());
  grad.clear();
  RowSparse own = coalesce(ctx, {raw});
  raw.rows = Tensor();
  std::vector<int32_t> index;
  GatheredIndices gathered;
  if (ctx.comm->size() == 1) {
    index = own.indices;
  } else {
    gathered = gather_indices(ctx, config_.gather == "raw" ? raw.indices : own.indices, env_.group);
    index = union_of(ctx, gathered, param.shape()[0]);
    if (index.empty()) return;  // empty on every rank
  }
  Tensor sum = reducer_.reduce_rows(ctx, param.name(), std::move(own), index, &gathered);
  grad.pieces.push_back({std::move(index), std::move(sum), true});
}

void SumStrategy::after_step(Context&) {
  reducer_.commit();
  committed_ = common_;
  if (!std::exchange(discarded_, false)) ++updates_;
}
void SumStrategy::discard() {
  reducer_.discard();
  common_ = committed_;
  discarded_ = true;
}
StateDict SumStrategy::state() const {
  return reducer_.state();
}
void SumStrategy::load(Context& ctx, const std::vector<StateDict>& ranks) {
  reducer_.load(ctx, ranks);
}
StateDict SumStrategy::common_state() const {
  StateDict all = committed_;
  const auto updates = static_cast<double>(updates_);
  if (!all.empty()) all.emplace(kUpdates, Tensor::from<double>(Allocator::cpu(), {1}, std::span(&updates, 1)));
  return all;
}
void SumStrategy::load_common(Context& ctx, const StateDict& state) {
  common_.clear();
  updates_ = 0;
  for (const auto& [name, t] : state)
    if (name == kUpdates)
      updates_ = static_cast<int64_t>(t.values<double>()[0]);
    else
      common_[name] = ctx.comm->once<Tensor>([&] { return ctx.upload(t).clone(MemClass::optimizer); });
  committed_ = common_;
}
std::map<std::string, CodecHealth> SumStrategy::take_health() {
  return reducer_.take_health();
}

std::string SumStrategy::describe(int ranks) const {
  if (config_.levels == 1) return {};
  if (env_.ranks_per_node >= ranks) return "two levels, but all ranks are in one node";
  return str("two levels: ", ranks / env_.ranks_per_node, " nodes of ", plural(env_.ranks_per_node, "rank"));
}

std::vector<std::string> SumStrategy::warnings(bool loss_scaled) const {
  return config_.codec.warnings(str("sync.", env_.group, ".codec"), loss_scaled);
}

}  // namespace lmx
