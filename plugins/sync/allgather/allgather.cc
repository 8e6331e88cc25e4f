// The baseline of Patwary 2018 that gathers every rank's rows with their indices: Theta(G K D) bytes and memory. Each
// rank's rows are summed first, then the ranks in ascending order from +0, so the result is bit-equal to that of
// `unique`.
#include <algorithm>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct AllgatherConfig {
  CodecConfig codec;
  void fields(Fields& f) { f.group("codec", codec, "how gradients are written for the wire; rows are added in fp32"); }
  void check(const std::string& where) const {
    codec.check(where);
    if (codec.feedback())
      throw UserError(str(where, ".codec.kind: allgather sends rows as they occur, so ", codec.kind,
                          "'s error feedback has no place to keep their errors; choose strategy unique, or codec fp16 "
                          "or bf16"));
  }
};

// Sums the ranks' rows, (K_r, D) one after the other, over the rows of `index`, which ascend.
Tensor sum_ranks(Context& ctx, const GatheredIndices& gathered, const Tensor& rows, std::span<const int32_t> index) {
  Shape shape = rows.shape();
  shape[0] = static_cast<int64_t>(index.size());
  Tensor sum = ctx.zeros(shape, rows.dtype(), MemClass::communication);
  int64_t at = 0;
  for (const int64_t count : gathered.counts) {
    const auto own = gathered.all.slice(at, at + count).values<int32_t>();
    RowSparse piece = coalesce(ctx, {{{own.begin(), own.end()}, rows.slice(at, at + count), false}});
    at += count;
    auto place = index.begin();
    for (int32_t& row : piece.indices) {  // the row's place in `index`
      place = std::lower_bound(place, index.end(), row);
      row = static_cast<int32_t>(place - index.begin());
    }
    add_rows(ctx, sum, std::move(piece));
  }
  return sum;
}

class Allgather final : public SumStrategy {
 public:
  Allgather(const AllgatherConfig& config, const SyncEnv& env) : SumStrategy(SumConfig{.codec = config.codec}, env) {}

 protected:
  void reduce_table(Context& ctx, Var& param) override {
    if (ctx.comm->size() == 1) return;
    Gradient& grad = param.grad();
    const RowSparse own = rows_of(ctx, grad, param.value());
    grad.clear();
    const GatheredIndices gathered = gather_indices(ctx, own.indices, env().group);
    const Tensor rows = reducer().gather(ctx, param.name(), own.rows, gathered.counts);
    std::vector<int32_t> index = union_of(ctx, gathered, param.shape()[0]);
    if (index.empty()) return;  // empty on every rank
    Tensor sum = ctx.comm->once_tensor(MemClass::communication, [&] { return sum_ranks(ctx, gathered, rows, index); });
    grad.pieces.push_back({std::move(index), std::move(sum), true});
  }
};

std::unique_ptr<SyncRule> make_allgather(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<AllgatherConfig>(config, path);
  // If there are dense gradients, the codec sums them and uses `reduce`.
  if (std::all_of(env.params.begin(), env.params.end(), [](const ParameterSpec& p) { return p.sparse; }))
    c.codec.check_sums(path, "allgather gathers rows and adds them in fp32");
  return std::make_unique<Allgather>(c, env);
}

}  // namespace

LMX_PLUGIN(sync, allgather, AllgatherConfig, make_allgather)
