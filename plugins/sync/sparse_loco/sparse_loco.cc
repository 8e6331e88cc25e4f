// SparseLoCo (Sarfi et al. 2025): DiLoCo in which the residual of each rank, which decays, takes the place of the outer
// momentum. A rank sends the largest elements of each chunk of it, in few bits.
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct SparseLocoConfig {
  OuterConfig outer{
      .every = 15,
      .outer_lr = 1,
      .outer_momentum = 0,
      .outer_nesterov = false,
      .codec = {.kind = "quantised", .options = parse_yaml("{bits: 2, levels: statistical, block: 0}", "sparse_loco")}};
  int64_t top = 128, chunk = 4096;
  double decay = 0.95;
  std::string mean = "senders";
  void fields(Fields& f) {
    outer.fields(f);
    f.field("top", top, "elements that a rank sends of each chunk", kPositive);
    f.field("chunk", chunk, "successive elements", {1, 1 << 30});
    f.field("decay", decay, "part of the residual that remains for the next exchange", kFraction);
    f.choice("mean", mean, {"senders", "ranks"}, "of an element: over the ranks that have sent it, or over all");
  }
  void check(const std::string& where) const {
    outer.check(where);
    if (top > chunk) throw UserError(str(where, ".top: ", top, " is more than the chunk of ", chunk));
    if (outer.codec.feedback())
      throw UserError(str(where, ".codec: the residual contains its error already; give codec.feedback: 0"));
  }
  Traits traits() const { return outer.traits(); }
};

class SparseLoco final : public OuterStrategy {
 public:
  SparseLoco(const SparseLocoConfig& config, const SyncEnv& env)
      : OuterStrategy(config.outer, env), c_(config), codec_(make_codec(config.outer.codec)) {}

 private:
  Tensor sum_of_changes(Context& ctx, Fragment& f, Tensor change) override {
    const auto ranks = static_cast<float>(ctx.comm->size());
    const bool alone = ctx.comm->size() == 1;  // exchanges nothing
    if (f.kept.defined()) add_scaled(ctx, change, alone ? 1.0f : static_cast<float>(c_.decay), f.kept);
    f.kept = alone ? Tensor() : change;
    if (alone) return change;
    const ChunkGather how{f.size, c_.top, c_.chunk, codec_.get(), c_.mean == "senders"};
    Entries sent = take_largest(ctx, change, c_.top, c_.chunk);
    add_scaled(ctx, change, 1, spread_entries(ctx, sent, f.size));
    const Tensor all = gather_chunks(ctx, how, sent, env().group);
    add_scaled(ctx, change, -1, spread_entries(ctx, sent, f.size));
    if (!how.means) return all;
    // The mean over ranks is taken of the result.
    return ctx.comm->once_tensor(MemClass::communication, [&] { return scaled(ctx, all, ranks); });
  }

  SparseLocoConfig c_;
  std::unique_ptr<Codec> codec_;
};

}  // namespace

LMX_PLUGIN(sync, sparse_loco, SparseLocoConfig, SparseLoco)
