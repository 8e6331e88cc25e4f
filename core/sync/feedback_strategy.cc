#include "lmx/feedback_strategy.h"

#include <algorithm>
#include <map>

#include "comm/residuals.h"
#include "comm/vectors/vectors.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"
#include "lmx/vectors.h"

namespace lmx {
namespace {

constexpr double kExactBucketMb = 150;  // Ott 2018, section 4.4
constexpr const char* kVelocity = ".velocity";

}  // namespace

void FeedbackConfig::fields(Fields& f) {
  f.field("feedback", feedback, "add what was not sent to the gradient of the next step");
  f.field("bucket_mb", bucket_mb, "megabytes of dense gradients that are compressed as one vector; 0: each separately",
          kNonNegative);
  f.field("min_size", min_size, "dense gradients with fewer elements are summed exactly", kNonNegative);
}

struct FeedbackStrategy::Impl {
  comm::Residuals residuals;
  std::map<std::string, ParameterSpec> params;
};

FeedbackStrategy::FeedbackStrategy(const FeedbackConfig& config, const SyncEnv& env)
    : SumStrategy({.codec = {}, .bucket_mb = kExactBucketMb}, env), config_(config), impl_(std::make_unique<Impl>()) {
  for (const ParameterSpec& p : env.params) impl_->params.emplace(p.name, p);
}
FeedbackStrategy::~FeedbackStrategy() = default;

std::vector<std::vector<std::string>> FeedbackStrategy::units(const std::vector<ParameterSpec>& params) const {
  std::vector<ParameterSpec> exact, compressed;
  for (const ParameterSpec& p : params) (!p.sparse && compresses(p) ? compressed : exact).push_back(p);
  std::vector<std::vector<std::string>> units = buckets(compressed, config_.bucket_mb);
  for (std::vector<std::string>& unit : SumStrategy::units(exact)) units.push_back(std::move(unit));
  return units;
}

bool FeedbackStrategy::compresses(const ParameterSpec& p) const {
  return p.shape.numel() >= config_.min_size;
}

void FeedbackStrategy::begin_step(Context&, std::span<const Batch>, StepPlan& plan) {
  step_ = plan.step;
}

void FeedbackStrategy::reduce(Context& ctx, std::span<Var> unit) {
  const ParameterSpec& first = impl_->params.at(unit[0].name());
  if (first.sparse) return reduce_exactly(ctx, unit);
  const std::vector<Tensor> velocities = config_.momentum > 0 ? accelerate(ctx, unit) : std::vector<Tensor>();
  if (compresses(first))
    reduce_block(ctx, unit, velocities);
  else
    reduce_exactly(ctx, unit);
}

void FeedbackStrategy::reduce_exactly(Context& ctx, std::span<Var> unit) {
  SumStrategy::reduce(ctx, unit);
  if (result() != SyncResult::direction) return;
  for (Var& p : unit) {
    if (p.grad().dense.defined()) p.grad().dense = signs(ctx, p.grad().dense);
    for (RowSparse& piece : p.grad().pieces) piece.rows = signs(ctx, piece.rows);
  }
}

namespace {

Tensor f32_of(const Var& p, Tensor gradient) {
  if (gradient.dtype() == DType::f32) return gradient;
  throw UserError(str("[sync] the gradient of ", p.name(), " is ", describe(gradient), "; compressors take f32"));
}

// The gradients of a unit one after the other, flat. A parameter without a gradient has zeros. Frees the gradients.
Tensor take_gradients(Context& ctx, std::span<Var> unit) {
  Tensor all;
  int64_t size = 0, at = 0;
  for (const Var& p : unit) size += p.shape().numel();
  if (unit.size() > 1) all = ctx.empty({size}, DType::f32, MemClass::communication);
  for (Var& p : unit) {
    const Tensor own = f32_of(p, dense_of(ctx, p.grad(), p.value())).reshape({-1});
    p.grad().clear();
    if (unit.size() == 1) return own;
    all.slice(at, at + own.numel()).copy_from(own);
    at += own.numel();
  }
  return all;
}

// A copy of the gradient, to which the residual is added.
Tensor with_residual(Context& ctx, comm::Residuals* residuals, const std::string& name, const Tensor& own) {
  const int64_t n = own.numel();
  if (!residuals) return own.clone(MemClass::communication);
  const comm::Residuals::Exchanged kept = residuals->exchange(ctx, comm::Side::push, name, n, 1);
  run_kernel(ctx,
             comm::CopyRows<float>{comm::Rows(own.reshape({n, 1})).from(), kept.before.from(), kept.now.from(), n, 1});
  return kept.now.tensor.reshape({n});
}

void clear_where_zero(Context& ctx, const Tensor& x, Tensor y) {
  run_kernel(ctx, comm::ClearWhereZero<float>{x.data<float>(), x.numel(), y.data<float>()});
}

}  // namespace

// Replaces the gradients by the velocities. Returns these, (size) each.
std::vector<Tensor> FeedbackStrategy::accelerate(Context& ctx, std::span<Var> unit) {
  std::vector<Tensor> velocities;
  for (Var& p : unit) {
    const int64_t n = p.shape().numel();
    const Tensor own = f32_of(p, dense_of(ctx, p.grad(), p.value())).reshape({n, 1});
    const comm::Residuals::Exchanged kept =
        impl_->residuals.exchange(ctx, comm::Side::push, p.name() + kVelocity, n, 1);
    run_kernel(ctx, comm::CopyRows<float>{comm::Rows(own).from(), kept.before.from(), kept.now.from(), n, 1,
                                          static_cast<float>(config_.momentum)});
    velocities.push_back(kept.now.tensor.reshape({n}));
    p.grad().clear();
    p.grad().dense = velocities.back().clone(MemClass::communication).reshape(p.shape());
  }
  return velocities;
}

Tensor FeedbackStrategy::exchanged(Context& ctx, const Block& block, const Tensor& v) {
  Tensor sum = exchange(ctx, block, v);
  if (sum.defined() && sum.dtype() == DType::f32 && sum.numel() == block.size) return sum.reshape({block.size});
  throw UserError(str("[sync] exchange() of ", block.name, " returns ",
                      sum.defined() ? lmx::describe(sum) : "no tensor", ", expected f32 (", block.size, ")"));
}

void FeedbackStrategy::reduce_block(Context& ctx, std::span<Var> unit, std::span<const Tensor> velocities) {
  const bool alone = ctx.comm->size() == 1 && result() == SyncResult::sum;
  if (ctx.comm->size() == 1 && std::all_of(unit.begin(), unit.end(), [](const Var& p) { return p.grad().empty(); }))
    return;
  const Tensor own = take_gradients(ctx, unit);
  Block block{unit[0].name(), unit[0].shape(), own.numel(), step_};
  if (unit.size() > 1) block = {str(block.name, '+', unit.size() - 1), {own.numel()}, own.numel(), step_};
  comm::Residuals& kept = impl_->residuals;
  const Tensor v = alone ? Tensor() : with_residual(ctx, feedback() ? &kept : nullptr, block.name, own);
  const Tensor sum = alone ? kept.settle(ctx, block.name, own) : exchanged(ctx, block, v);
  int64_t at = 0;
  for (size_t i = 0; i < unit.size(); ++i) {
    const int64_t end = at + unit[i].shape().numel();
    unit[i].grad().dense = sum.slice(at, end).reshape(unit[i].shape());
    if (!alone && !velocities.empty()) clear_where_zero(ctx, v.slice(at, end), velocities[i]);
    at = end;
  }
}

void FeedbackStrategy::after_step(Context& ctx) {
  SumStrategy::after_step(ctx);
  impl_->residuals.commit();
}
void FeedbackStrategy::discard() {
  SumStrategy::discard();
  impl_->residuals.discard();
}
void FeedbackStrategy::rescale(double factor) {
  impl_->residuals.rescale(factor);
}
StateDict FeedbackStrategy::state() const {
  return impl_->residuals.state();
}

void FeedbackStrategy::load(Context& ctx, const std::vector<StateDict>& ranks) {
  if (feedback()) return impl_->residuals.load(ctx, ranks);
  for (const StateDict& state : ranks)
    if (!state.empty())
      throw UserError(str("[sync] the checkpoint contains the residual ", state.begin()->first, ", and sync.", group(),
                          ".feedback is false; resume with feedback: true"));
}

RandomKey FeedbackStrategy::key(const Block& block) const {
  return env().key.fold(block.name).fold(static_cast<uint64_t>(block.step));
}

}  // namespace lmx
