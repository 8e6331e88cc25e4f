// The sum of every gradient over ranks. Dense gradients travel in buckets, in the order in which backward finishes them
// (the same on all ranks); a row-sparse gradient is summed locally, then its rows are gathered, so that V x D never
// exists.
#include <algorithm>
#include <cstring>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/sync.h"

namespace {

using namespace lmx;

struct AllreduceConfig {
  double bucket_mb = 25;
  void fields(Fields& f) {
    f.field("bucket_mb", bucket_mb, "megabytes of dense gradients that travel as one message; 0: each on its own",
            kNonNegative);
  }
};

class Allreduce : public SyncStrategy {
 public:
  Allreduce(const AllreduceConfig& config, SyncEnv env)
      : env_(std::move(env)), bucket_bytes_(static_cast<int64_t>(config.bucket_mb * 1e6)) {}

  void begin_step(Context&, StepPlan&) override {
    bucket_.clear();
    bytes_ = 0;
  }

  void grad_ready(Context& ctx, const Var& param) override {
    Gradient& grad = param.grad();
    if (grad.empty()) return;
    if (grad.sparse()) return gather_rows(ctx, grad);
    if (!bucket_.empty() && bucket_[0].dtype() != grad.dense.dtype()) flush(ctx);
    bucket_.push_back(grad.dense);
    bytes_ += grad.dense.bytes();
    if (bytes_ >= bucket_bytes_) flush(ctx);
  }

  void before_step(Context& ctx) override { flush(ctx); }
  bool owns_update(const Var&) const override { return false; }
  void after_step(Context&) override {}
  StateDict state() const override { return {}; }
  void load(const StateDict& state) override {
    if (!state.empty()) throw UserError(str("[allreduce] keeps no state, the checkpoint has ", state.begin()->first));
  }
  // A ring's share: 2 (G-1)/G of the gradient.
  int64_t expected_bytes(int64_t ranks, int64_t elements) const override {
    return 2 * (ranks - 1) * elements * 4 / ranks;
  }

 private:
  void flush(Context& ctx) {
    if (bucket_.size() == 1 || ctx.comm->size() == 1) {
      for (Tensor& t : bucket_) ctx.comm->all_reduce(t, env_.group);
    } else if (!bucket_.empty()) {
      reduce_together(ctx);
    }
    bucket_.clear();
    bytes_ = 0;
  }

  void reduce_together(Context& ctx) {
    const DType type = bucket_[0].dtype();
    Tensor message = ctx.empty({bytes_ / static_cast<int64_t>(size_of(type))}, type, MemClass::communication);
    auto* at = static_cast<std::byte*>(message.raw());
    for (const Tensor& t : bucket_) at = std::copy_n(static_cast<const std::byte*>(t.raw()), t.bytes(), at);
    ctx.comm->all_reduce(message, env_.group);
    at = static_cast<std::byte*>(message.raw());
    for (Tensor& t : bucket_) {
      std::memcpy(t.raw(), at, static_cast<size_t>(t.bytes()));
      at += t.bytes();
    }
  }

  void gather_rows(Context& ctx, Gradient& grad) {
    grad.coalesce(ctx);
    RowSparse& own = grad.pieces[0];
    const Tensor indices = Tensor::from<int32_t>(ctx.allocator, {static_cast<int64_t>(own.indices.size())}, own.indices,
                                                 MemClass::communication);
    const Tensor all = ctx.comm->all_gather(indices, env_.group);
    own.rows = ctx.comm->all_gather(own.rows, env_.group);
    if (ctx.comm->size() == 1) return;
    own.indices.assign(all.values<int32_t>().begin(), all.values<int32_t>().end());
    own.unique = false;  // the ranks' rows, one rank after the other
    grad.coalesce(ctx);
  }

  SyncEnv env_;
  int64_t bucket_bytes_, bytes_ = 0;
  std::vector<Tensor> bucket_;
};

std::unique_ptr<SyncStrategy> make_allreduce(const Node& config, const std::string& path, const SyncEnv& env) {
  return std::make_unique<Allreduce>(read_config<AllreduceConfig>(config, path), env);
}

}  // namespace

LMX_PLUGIN(sync, allreduce, AllreduceConfig, make_allreduce)
