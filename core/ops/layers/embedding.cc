// y_i = table[ids_i]. The gradient is row-sparse: row ids_i of the table receives dy_i.
#include "ops/common.h"

namespace lmx {

using namespace ops;

Var embedding(Context& ctx, const Var& table, const Tensor& ids) {
  const Tensor& rows = table.value();
  if (rows.rank() != 2) throw UserError(str("[embedding] table ", rows.shape(), ": (V, D) expected"));
  if (ids.rank() == Shape::kMaxRank) throw UserError(str("[embedding] ids ", ids.shape(), ": at most 5 dimensions"));
  check_ids("embedding", "ids", ids, rows.dim(0), "table", rows.shape());
  std::vector<int64_t> dims(ids.shape().dims().begin(), ids.shape().dims().end());
  dims.push_back(rows.dim(1));
  const Tensor found = gather_rows(ctx, rows, ctx.upload(ids).data<int32_t>(), ids.numel());
  Var out(found.reshape(Shape(std::span<const int64_t>(dims))));
  if (recording(ctx, {&table})) {
    const std::span<const int32_t> all = ids.values<int32_t>();
    std::vector<int32_t> indices(all.begin(), all.end());
    ctx.tape->record("embedding", {table}, {out}, [&ctx, table, out, indices = std::move(indices)](Tape&) {
      const auto n = static_cast<int64_t>(indices.size());
      if (n == 0) return;
      Tape::accumulate_rows(ctx, table, {indices, Tape::grad_of(out).reshape({n, table.value().dim(1)}), false});
    });
  }
  return out;
}

}  // namespace lmx
