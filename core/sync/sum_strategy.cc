#include "lmx/sum_strategy.h"

#include <algorithm>
#include <numeric>

#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx {
namespace {

// Rows that this rank sends to each rank, and rows that each rank sums.
RankRows pushed_rows(const Traffic& t, const Traffic::Sparse& s) {
  const auto me = static_cast<size_t>(t.rank);
  return s.pushed.empty() ? RankRows::divided(t.ranks, s.unique[me]) : RankRows(s.pushed[me]);
}
RankRows summed_rows(const Traffic& t, const Traffic::Sparse& s) {
  return s.owned.empty() ? RankRows::divided(t.ranks, s.union_rows) : RankRows(s.owned);
}

}  // namespace

SumStrategy::SumStrategy(SumConfig config, SyncEnv env)
    : config_(std::move(config)), env_(std::move(env)), reducer_(config_.codec, env_.group, config_.levels) {
  for (const ParameterSpec& p : env_.params)
    if (p.sparse) tables_.insert(p.name);
}

std::vector<std::vector<std::string>> SumStrategy::units(const std::vector<ParameterSpec>& params) const {
  std::vector<std::vector<std::string>> units;
  std::vector<std::string> bucket;
  double bytes = 0;
  for (const ParameterSpec& p : params) {
    if (p.sparse) {
      units.push_back({p.name});
      continue;
    }
    bucket.push_back(p.name);
    bytes += static_cast<double>(reducer_.codec().bytes(p.shape[0], row_width(p.shape)));
    if (bytes < config_.bucket_mb * 1e6) continue;
    units.push_back(std::move(bucket));
    bucket.clear();
    bytes = 0;
  }
  if (!bucket.empty()) units.push_back(std::move(bucket));
  return units;
}

void SumStrategy::reduce(Context& ctx, std::span<Var> unit) {
  if (unit.size() == 1 && tables_.contains(unit[0].name())) return reduce_table(ctx, unit[0]);
  for (const Var& p : unit) LMX_CHECK(!tables_.contains(p.name()), p.name(), " travels alone");
  reduce_dense(ctx, unit);
}

void SumStrategy::reduce_dense(Context& ctx, std::span<Var> params) {
  std::vector<Reducer::Block> blocks;
  std::vector<Var> present;
  for (Var& p : params) {
    if (ctx.comm->size() == 1 && p.grad().empty()) continue;
    blocks.push_back({p.name(), dense_of(ctx, p.grad(), p.value())});
    p.grad().clear();  // frees the gradient as soon as the block is encoded or sent
    present.push_back(p);
  }
  const std::vector<Tensor> sums = reducer_.reduce(ctx, blocks);
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

int64_t SumStrategy::table_bytes(const Traffic& t, const Traffic::Sparse& s, int to) const {
  const int64_t told = index_bytes(t, config_.gather == "raw" ? s.indices : s.unique);
  if (s.union_rows == 0) return told;
  const int64_t elements = s.union_rows * s.width;
  if (reducer_.codec().elementwise())
    return told + reducer_.sent_bytes_by_level(t.rank, to, t.ranks, t.ranks_per_node, std::span(&elements, 1));
  return told + reducer_.sent_row_bytes(t.rank, to, pushed_rows(t, s), summed_rows(t, s), s.width);
}

int64_t SumStrategy::expected_bytes(const Traffic& t, int to) const {
  int64_t bytes = 0;
  std::vector<int64_t> sizes;
  for (const Traffic::Dense& d : t.dense) {
    if (!reducer_.codec().elementwise()) bytes += reducer_.sent_bytes(t.rank, to, t.ranks, d.rows, d.width);
    sizes.push_back(d.rows * d.width);
  }
  if (reducer_.codec().elementwise())
    bytes += reducer_.sent_bytes_by_level(t.rank, to, t.ranks, t.ranks_per_node, sizes);
  for (const Traffic::Sparse& s : t.sparse) bytes += table_bytes(t, s, to);
  return bytes;
}

// The numbers of indices, the indices and, if any rank has a row, both directions of the sum.
int64_t SumStrategy::table_collectives(const Traffic::Sparse& s) const {
  return s.union_rows > 0 ? 4 : 2;
}

int64_t SumStrategy::collectives(const Traffic& t) const {
  if (t.ranks == 1) return 0;
  // A bucket is one message. With two levels, each sum has both directions inside a node and between nodes.
  const bool by_level = config_.levels == 2 && t.ranks_per_node > 1 && t.ranks_per_node < t.ranks;
  const int64_t sum = by_level ? 4 : 2;
  int64_t n = t.dense.empty() ? 0 : sum;
  for (const Traffic::Sparse& s : t.sparse) n += table_collectives(s) + (by_level && s.union_rows > 0 ? 2 : 0);
  return n;
}

// A codec reads all values to encode them. With error feedback it reads them twice, for the means and for the bits, and
// reads and writes a residual; the owner of a sum does the same with its part.
int64_t SumStrategy::moved_bytes(const Traffic& t) const {
  const int64_t plain = SyncStrategy::moved_bytes(t), sums = kept_bytes(t).sums;
  if (config_.codec.kind == "none" || t.ranks == 1) return plain;
  return plain + sums + (reducer_.codec().feedback() ? 3 * (sums + sums / t.ranks) : 0);
}

StateDict SumStrategy::state() const {
  return reducer_.state();
}
void SumStrategy::load(Context& ctx, const std::vector<StateDict>& ranks) {
  reducer_.load(ctx, ranks);
}
std::map<std::string, CodecHealth> SumStrategy::take_health() {
  return reducer_.take_health();
}

// With two levels a rank exchanges encoded parts with one rank of each node only.
int64_t SumStrategy::pair_bytes() const {
  return config_.codec.kind == "none" || config_.levels == 2 ? 0 : SyncStrategy::pair_bytes();
}

std::string SumStrategy::describe(int ranks) const {
  if (config_.levels == 1) return {};
  if (env_.ranks_per_node >= ranks) return "two levels, but all ranks are in one node";
  return str("two levels: ", ranks / env_.ranks_per_node, " nodes of ", env_.ranks_per_node,
             env_.ranks_per_node == 1 ? " rank" : " ranks");
}

std::vector<std::string> SumStrategy::warnings(bool loss_scaled) const {
  return config_.codec.warnings(str("sync.", env_.group, ".codec"), loss_scaled);
}

}  // namespace lmx
