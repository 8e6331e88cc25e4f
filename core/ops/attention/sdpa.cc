#include "ops/attention/sdpa.h"

#include <algorithm>
#include <bit>

#include "backend/convert.h"
#include "backend/cudnn.h"
#include "ops/common.h"

namespace lmx::ops {
namespace {

constexpr int64_t kLengthBucket = 128;  // one plan serves all lengths between two multiples
constexpr int64_t kSizeStep = 8;        // 16 bytes, which cuDNN loads at once
constexpr int64_t kLargestSize = 128;   // for which cuDNN has a gradient on every device

// Each sequence has both queries and keys, or neither.
bool both_or_neither(const Segments& queries, const Segments& keys) {
  for (size_t b = 0; b + 1 < keys.begin.size(); ++b) {
    if ((queries.begin[b] == queries.begin[b + 1]) != (keys.begin[b] == keys.begin[b + 1])) return false;
  }
  return true;
}

// Whether this is an attention for cuDNN on the devices that it supports.
bool suits(const Context& ctx, const Operands& x, const AttentionPlan& plan) {
  const bool rounds = plan.compute == DType::bf16 || plan.compute == DType::f16;
  return ctx.device.kind == Device::Kind::cuda && rounds && x.q.value_type() == DType::f32 && plan.keys > kFewKeys &&
         plan.size % kSizeStep == 0 && plan.size <= kLargestSize && !same_columns(x.q, x.k) &&
         !same_columns(x.k, x.v) && !same_columns(x.q, x.v);
}

int64_t rounded_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

SdpaShape shape_of(const Operands& x, const AttentionPlan& plan) {
  return {plan.compute,
          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(plan.sequences))),
          plan.heads,
          plan.kv_heads,
          plan.size,
          rounded_up(plan.queries, kLengthBucket),
          rounded_up(plan.keys, kLengthBucket),
          x.q.stride(),
          x.k.stride(),
          x.v.stride(),
          plan.causal};
}

// The first element of each sequence in rows of `stride` elements. Sequences beyond the last are at the end.
std::vector<int64_t> offsets_of(const Segments& rows, int64_t stride, int64_t batch) {
  std::vector<int64_t> offsets(static_cast<size_t>(batch) + 1, rows.begin.back() * stride);
  std::transform(rows.begin.begin(), rows.begin.end(), offsets.begin(), [&](int64_t row) { return row * stride; });
  return offsets;
}

std::vector<int32_t> counts_of(const Segments& rows, int64_t batch) {
  std::vector<int32_t> counts(static_cast<size_t>(batch));
  for (size_t b = 0; b + 1 < rows.begin.size(); ++b)
    counts[b] = static_cast<int32_t>(rows.begin[b + 1] - rows.begin[b]);
  return counts;
}

template <class F>
decltype(auto) with_rounded(DType type, F&& f) {
  return type == DType::bf16 ? f(bfloat16{}) : f(float16{});
}

// The gradient of a variable with one or more operands. cuDNN writes all its columns as `rounded`, which is the operand
// of the next product where that is wanted.
template <class T>
class RoundedGradient {
 public:
  RoundedGradient(Context& ctx, const Var& var) : var_(var) {
    if (var.requires_grad()) {
      sink_ = Tape::sink(ctx, var);
      rounded_ =
          projected() ? sink_.grad.template data<T>() : static_cast<T*>(Tape::operand_of_sink(ctx, var, sink_).to);
    }
    if (rounded_) return;
    memory_ = ctx.empty(var.shape(), dtype_of<T>);
    rounded_ = memory_.template data<T>();
  }
  const Var& var() const { return var_; }
  T* of(const Operand& x) const { return rounded_ + x.column; }
  // After cuDNN: adds the gradient to that of the variable, in f32, unless that has type T.
  void add(Context& ctx) {
    if (!var_.requires_grad() || projected()) return;
    Tensor& grad = sink_.grad;
    if (sink_.beta == 0) return run_kernel(ctx, Convert<T, float>{rounded_, grad.data<float>(), grad.numel()});
    add_tensor(ctx, grad, widened(ctx, rounded_, dtype_of<T>, grad.numel()).reshape(grad.shape()));
  }

 private:
  bool projected() const { return var_.value().dtype() == dtype_of<T>; }
  Var var_;
  Tape::Sink sink_{};
  Tensor memory_;
  T* rounded_ = nullptr;
};

}  // namespace

std::shared_ptr<const LongAttention> LongAttention::of(Context& ctx, const Operands& x, const AttentionPlan& plan,
                                                       const Segments& queries, const Segments& keys) {
  if (!suits(ctx, x, plan) || !both_or_neither(queries, keys)) return nullptr;
  const SdpaShape shape = shape_of(x, plan);
  if (!cudnn_computes(ctx, shape)) return nullptr;
  std::shared_ptr<LongAttention> a(new LongAttention);
  a->shape_ = shape;
  const auto offsets = [&](const Segments& rows, int64_t stride) {
    return ctx.upload(offsets_of(rows, stride, shape.batch));
  };
  a->q_offsets_ = offsets(queries, shape.q_stride);
  a->k_offsets_ = offsets(keys, shape.k_stride);
  a->v_offsets_ = offsets(keys, shape.v_stride);
  a->y_offsets_ = offsets(queries, shape.heads * shape.size);
  a->lse_offsets_ = offsets(queries, shape.heads);
  a->query_counts_ = ctx.upload(counts_of(queries, shape.batch));
  a->key_counts_ = ctx.upload(counts_of(keys, shape.batch));
  return a;
}

template <class T>
SdpaInput<T> LongAttention::input(Context& ctx, const Operands& x) const {
  const auto data = [&](const Operand& o) { return compute_copy(ctx, o.var).template data<T>() + o.column; };
  return {shape_,
          data(x.q),
          data(x.k),
          data(x.v),
          q_offsets_.data(),
          k_offsets_.data(),
          v_offsets_.data(),
          y_offsets_.data(),
          lse_offsets_.data(),
          query_counts_.data(),
          key_counts_.data()};
}

void LongAttention::forward(Context& ctx, const Operands& x, const Var& out, const Tensor& lse) const {
  with_rounded(shape_.type, [&](auto zero) {
    using T = decltype(zero);
    const bool projected = x.q.projected;
    T* const y = static_cast<T*>(projected ? const_cast<void*>(out.value().raw()) : target_of_copy(ctx, out).to);
    run_kernel(ctx, SdpaForward<T>{input<T>(ctx, x), y, const_cast<float*>(lse.data<float>())});
    if (projected) return;
    run_kernel(ctx, Convert<T, float>{y, const_cast<float*>(out.value().data<float>()), out.value().numel()});
  });
}

void LongAttention::backward(Context& ctx, const Operands& x, const Var& out, const Tensor& lse) const {
  with_rounded(shape_.type, [&](auto zero) {
    using T = decltype(zero);
    const Tensor dy = Tape::operand_of_grad(ctx, out), y = compute_copy(ctx, out);
    std::vector<RoundedGradient<T>> grads;  // of each variable
    const auto gradient = [&](const Operand& o) {
      for (const RoundedGradient<T>& g : grads) {
        if (g.var().same(o.var)) return g.of(o);
      }
      return grads.emplace_back(ctx, o.var).of(o);
    };
    T* const dq = gradient(x.q);
    T* const dk = gradient(x.k);
    T* const dv = gradient(x.v);
    run_kernel(ctx, SdpaBackward<T>{input<T>(ctx, x), y.data<T>(), dy.data<T>(), lse.data<float>(), dq, dk, dv});
    for (RoundedGradient<T>& g : grads) g.add(ctx);
  });
}

}  // namespace lmx::ops
