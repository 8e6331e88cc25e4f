// Input projections of all steps are one GEMM before the loop over time, weight gradients one GEMM each after it;
// inside the loop stand only the recurrent product, the pointwise kernel and the projection, with packed weights.
#include "lstm_op.h"

#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"
#include "lstm_kernels.h"

namespace lmx::lstm {
namespace {

struct Sizes {
  int64_t steps, batch, input, cells, output;  // T, B, E, H, P
};

Sizes check(const Var& x, const LayerWeights& w, const LayerState& s) {
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[lstm] x ", x.shape(), ", w_ih ", w.w_ih.shape(), ", w_hh ", w.w_hh.shape(), ", bias ",
                        w.bias.shape(), w.w_hr.defined() ? str(", w_hr ", w.w_hr.shape()) : "", ", h ", s.h.shape(),
                        ", c ", s.c.shape(), ": ", why));
  };
  if (x.shape().rank() != 2 || w.w_ih.shape().rank() != 2 || w.w_hh.shape().rank() != 2 || s.h.rank() != 2) {
    fail("x, w_ih, w_hh and h are matrices");
  }
  const int64_t gates = w.w_ih.shape()[0], batch = s.h.dim(0);
  const Sizes z{batch ? x.shape()[0] / batch : 0, batch, x.shape()[1], gates / 4, w.w_hh.shape()[1]};
  if (gates % 4 || w.w_hh.shape()[0] != gates || w.bias.shape() != Shape{gates}) fail("gates must be 4H everywhere");
  if (w.w_ih.shape()[1] != z.input) fail("x and w_ih differ in the input size");
  if (z.steps * batch != x.shape()[0] || z.steps == 0) fail("x must have T*B rows");
  if (w.w_hr.defined() ? w.w_hr.shape() != Shape{z.output, z.cells} : z.output != z.cells) fail("projection is (P, H)");
  if (s.h.shape() != Shape{batch, z.output} || s.c.shape() != Shape{batch, z.cells})
    fail("state is h (B, P), c (B, H)");
  return z;
}

// A weight laid out for products with `rows` rows, kept until the weight changes.
const PackedMatrix& packed(Context& ctx, const Var& w, bool trans, int64_t rows) {
  return w.cached<PackedMatrix>(PackedMatrix::layout(ctx, w.value(), trans, rows), [&] {
    const Span span(ctx.tracer, "lstm.pack");
    return PackedMatrix(ctx, w.value(), trans, rows);
  });
}

// y += or = x op(w) for the rows of one step.
void multiply(Context& ctx, const PackedMatrix& w, const Tensor& x, Tensor& y, float beta) {
  const Span span(ctx.tracer, "lstm.recurrent_gemm");
  w.multiply(ctx, x, y, beta);
}

template <class Step>
void pointwise(Context& ctx, void (*kernel_of)(const Step&), const Step& step) {
  const Span span(ctx.tracer, "lstm.pointwise");
  kernel_of(step);
}

// What the forward leaves for the backward. Row blocks of (T+1) tensors: block t is the value before step t.
struct Saved {
  Sizes z;
  Tensor gates;   // (T*B, 4H) activated; the backward turns it into gradients of the pre-activations
  Tensor cells;   // ((T+1)*B, H)
  Tensor hidden;  // ((T+1)*B, P) in the compute type
  Tensor memory;  // (T*B, H) o tanh(c) in the compute type; undefined without a projection
};

template <class T>
Var forward(Context& ctx, const Var& x, const LayerWeights& w, LayerState& state, Saved& s, T forget_bias) {
  const Sizes& z = s.z;
  const DType type = dtype_of<T>;
  const auto kernel_of = kernel<ForwardKernel<T>>("lstm_forward", ctx.device, type);
  s.gates = ctx.empty({z.steps * z.batch, 4 * z.cells}, type);
  {
    const Span span(ctx.tracer, "lstm.input_projection");
    matmul(ctx, x.value(), false, w.w_ih.value(), true, s.gates);
  }
  s.cells = ctx.empty({(z.steps + 1) * z.batch, z.cells}, type);
  s.cells.slice(0, z.batch).copy_from(state.c);
  const bool projected = w.w_hr.defined();
  Tensor out = ctx.empty({z.steps * z.batch, z.output}, type);
  Tensor memory = ctx.empty({z.batch, z.cells}, type);
  const Tensor first = to_compute(ctx, state.h);
  s.hidden = ctx.empty({(z.steps + 1) * z.batch, z.output}, first.dtype());
  s.hidden.slice(0, z.batch).copy_from(first);
  if (projected) s.memory = ctx.empty({z.steps * z.batch, z.cells}, first.dtype());
  const PackedMatrix& recurrent = packed(ctx, w.w_hh, true, z.batch);
  const PackedMatrix* projection = projected ? &packed(ctx, w.w_hr, true, z.batch) : nullptr;
  for (int64_t t = 0; t < z.steps; ++t) {
    const int64_t b0 = t * z.batch, b1 = b0 + z.batch, b2 = b1 + z.batch;
    Tensor gates = s.gates.slice(b0, b1), now = out.slice(b0, b1);
    multiply(ctx, recurrent, s.hidden.slice(b0, b1), gates, 1.0f);
    T* m = projected ? memory.template data<T>() : now.template data<T>();
    pointwise(ctx, kernel_of,
              ForwardStep<T>{gates.template data<T>(), w.bias.value().template data<T>(),
                             s.cells.slice(b0, b1).template data<T>(), s.cells.slice(b1, b2).template data<T>(), m,
                             z.batch, z.cells, forget_bias});
    if (projected) {
      s.memory.slice(b0, b1).copy_from(to_compute(ctx, memory));
      multiply(ctx, *projection, s.memory.slice(b0, b1), now, 0.0f);
    }
    s.hidden.slice(b1, b2).copy_from(to_compute(ctx, now));
  }
  state.h = out.slice((z.steps - 1) * z.batch, z.steps * z.batch).clone();
  state.c = s.cells.slice(z.steps * z.batch, (z.steps + 1) * z.batch).clone();
  return Var(std::move(out));
}

template <class T>
Tensor column_sums(Context& ctx, const Tensor& m) {
  const int64_t rows = m.dim(0), cols = m.dim(1);
  Tensor out = ctx.zeros({cols}, m.dtype());
  parallel_for(cols, 512, [&](int64_t begin, int64_t end) {
    T* __restrict sum = out.template data<T>();
    for (int64_t r = 0; r < rows; ++r) {
      const T* __restrict row = m.template data<T>() + r * cols;
      for (int64_t j = begin; j < end; ++j) sum[j] += row[j];
    }
  });
  return out;
}

// Backward through time: s.gates becomes dz; returns dh of every step (T*B, P).
template <class T>
Tensor through_time(Context& ctx, const LayerWeights& w, Saved& s, const Tensor& dy) {
  const Sizes& z = s.z;
  const auto kernel_of = kernel<BackwardKernel<T>>("lstm_backward", ctx.device, dtype_of<T>);
  const bool projected = w.w_hr.defined();
  Tensor dh = dy.clone(MemClass::activations);
  Tensor dc = ctx.zeros({z.batch, z.cells}, dtype_of<T>), dm = ctx.empty({z.batch, z.cells}, dtype_of<T>);
  const PackedMatrix* recurrent = z.steps > 1 ? &packed(ctx, w.w_hh, false, z.batch) : nullptr;
  const PackedMatrix* projection = projected ? &packed(ctx, w.w_hr, false, z.batch) : nullptr;
  for (int64_t t = z.steps - 1; t >= 0; --t) {
    const int64_t b0 = t * z.batch, b1 = b0 + z.batch, b2 = b1 + z.batch;
    Tensor now = dh.slice(b0, b1), gates = s.gates.slice(b0, b1);
    if (projected) multiply(ctx, *projection, to_compute(ctx, now), dm, 0.0f);
    const T* d = projected ? dm.template data<T>() : now.template data<T>();
    pointwise(ctx, kernel_of,
              BackwardStep<T>{gates.template data<T>(), s.cells.slice(b0, b1).template data<T>(),
                              s.cells.slice(b1, b2).template data<T>(), d, dc.template data<T>(), z.batch, z.cells});
    if (t > 0) {
      Tensor before = dh.slice(b0 - z.batch, b0);
      multiply(ctx, *recurrent, to_compute(ctx, gates), before, 1.0f);
    }
  }
  return dh;
}

// dw (N, K) += a^T b over all steps; a (T*B, N), b (T*B, K).
void weight_gradient(Context& ctx, const Var& w, const Tensor& a, const Tensor& b) {
  if (!w.requires_grad()) return;
  Tape::Sink sink = Tape::sink(ctx, w);
  gemm(ctx, a, true, b, false, sink.grad, sink.beta);
}

template <class T>
void backward(Context& ctx, const Var& x, const LayerWeights& w, Saved& s, const Tensor& dy) {
  Tensor dh;
  {
    const Span span(ctx.tracer, "lstm.through_time");
    dh = through_time<T>(ctx, w, s, dy);
  }
  const Span span(ctx.tracer, "lstm.weight_gradients");
  const Sizes& z = s.z;
  const Tensor dz = to_compute(ctx, s.gates);
  weight_gradient(ctx, w.w_hh, dz, s.hidden.slice(0, z.steps * z.batch));
  if (w.w_hr.defined()) weight_gradient(ctx, w.w_hr, to_compute(ctx, dh), s.memory);
  weight_gradient(ctx, w.w_ih, dz, to_compute(ctx, x.value()));
  Tape::accumulate(ctx, w.bias, column_sums<T>(ctx, s.gates));
  if (x.requires_grad()) {
    Tape::Sink sink = Tape::sink(ctx, x);
    gemm(ctx, dz, false, to_compute(ctx, w.w_ih.value()), false, sink.grad, sink.beta);
  }
}

template <class T>
Var layer(Context& ctx, const Var& x, const LayerWeights& w, LayerState& state, double forget_bias) {
  auto saved = std::make_shared<Saved>();
  saved->z = check(x, w, state);
  const Span span(ctx.tracer, "lstm.forward");
  Var y = forward<T>(ctx, x, w, state, *saved, static_cast<T>(forget_bias));
  if (ctx.tape) {
    ctx.tape->record("lstm.backward", {x, w.w_ih, w.w_hh, w.bias, w.w_hr}, {y},
                     [&ctx, x, w, y, saved](Tape& tape) { backward<T>(ctx, x, w, *saved, tape.grad_of(y)); });
  }
  return y;
}

}  // namespace

Var lstm_layer(Context& ctx, const Var& x, const LayerWeights& w, LayerState& state, double forget_bias) {
  if (x.value().dtype() == DType::f64) return layer<double>(ctx, x, w, state, forget_bias);
  return layer<float>(ctx, x, w, state, forget_bias);
}

}  // namespace lmx::lstm
