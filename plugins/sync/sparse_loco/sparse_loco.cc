// SparseLoCo (Sarfi et al. 2025): DiLoCo in which the residual of each rank, which decays, takes the place of the outer
// momentum. A rank sends the largest elements of each chunk of it, in few bits.
#include <map>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

constexpr const char* kResidual = "residual.";

Node two_bits() {
  Node options = Node::map();
  options.set("bits", Node::scalar("2"));
  options.set("levels", Node::string("statistical"));
  options.set("block", Node::scalar("0"));
  return options;
}

struct SparseLocoConfig {
  OuterConfig outer{.every = 15,
                    .outer_lr = 1,
                    .outer_momentum = 0,
                    .outer_nesterov = false,
                    .codec = {.kind = "quantised", .options = two_bits()}};
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

  StateDict state() const override {
    StateDict all;
    for (const auto& [fragment, residual] : residuals_) all.emplace(str(kResidual, fragment), residual);
    return all;
  }
  // Another number of ranks: each gets an equal part of the sum of all residuals.
  void load(Context& ctx, const std::vector<StateDict>& ranks) override {
    residuals_.clear();
    const bool same = static_cast<int>(ranks.size()) == ctx.ranks;
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const auto& [key, t] : ranks[r]) {
        if (!key.starts_with(kResidual)) throw UserError(str("[sync] the checkpoint keeps '", key, "', no residual"));
        if (same && static_cast<int>(r) != ctx.rank) continue;
        Tensor& own = residuals_[std::stoll(key.substr(std::string(kResidual).size()))];
        if (!own.defined()) own = ctx.zeros(t.shape(), DType::f32, MemClass::communication);
        add_scaled(ctx, own, same ? 1.0f : 1.0f / static_cast<float>(ctx.ranks), ctx.upload(t));
      }
  }

 private:
  Tensor sum_of_changes(Context& ctx, const Fragment& f, Tensor change) override {
    Tensor& residual = residuals_[f.index];
    const bool alone = ctx.comm->size() == 1;  // exchanges nothing
    if (residual.defined()) add_scaled(ctx, change, alone ? 1.0f : static_cast<float>(c_.decay), residual);
    if (alone) {
      residuals_.clear();
      return change;
    }
    const ChunkGather how{f.size, c_.top, c_.chunk, codec_.get(), c_.mean == "senders"};
    Entries sent = take_largest(ctx, change, c_.top, c_.chunk);
    add_scaled(ctx, change, 1, spread_entries(ctx, sent, f.size));
    const Tensor all = gather_chunks(ctx, how, sent, env().group);
    add_scaled(ctx, change, -1, spread_entries(ctx, sent, f.size));
    residual = change;
    if (!how.means) return all;
    return ctx.comm->once_tensor(MemClass::communication, [&] {  // the mean over ranks is taken of the result
      const Tensor sum = ctx.zeros({f.size}, DType::f32, MemClass::communication);
      add_scaled(ctx, sum, static_cast<float>(ctx.comm->size()), all);
      return sum;
    });
  }

  SparseLocoConfig c_;
  std::unique_ptr<Codec> codec_;
  std::map<int64_t, Tensor> residuals_;  // by fragment
};

}  // namespace

LMX_PLUGIN(sync, sparse_loco, SparseLocoConfig, SparseLoco)
