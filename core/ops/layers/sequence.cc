#include "lmx/ops.h"

#include "autograd/gradient_sums.h"
#include "ops/common.h"

namespace lmx {

SequenceCell::~SequenceCell() = default;

int64_t segment_steps(const SequenceOptions& options, int64_t steps, int64_t batch, Device::Kind device) {
  // Large enough that a product's inner dimension is efficient, and small enough that the rows stay in a CPU's cache
  // and a checkpointed piece needs little memory. On a GPU without checkpointing, each further piece would only read
  // and write the gradient of each weight once more.
  constexpr int64_t kRows = 2048;
  int64_t wanted = options.segment;
  if (wanted == 0)
    wanted =
        device == Device::Kind::cuda && !options.checkpoint ? steps : (kRows + batch - 1) / std::max<int64_t>(batch, 1);
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(steps, 1));
}

namespace {

struct Piece {
  int64_t begin, end;          // rows
  std::vector<Tensor> before;  // state before the piece; empty if `saved` is kept
  std::shared_ptr<void> saved;
};

struct Recorded {
  Var x, y;
  std::shared_ptr<const SequenceCell> cell;
  std::vector<Piece> pieces;
  std::vector<Tensor> state_like;  // tensors with the state's shapes, from which zeros are made
};

Tensor zeros_like(const Tensor& t) {
  Tensor z = t.like(MemClass::activations);
  z.zero();
  return z;
}

// Processes the pieces from last to first. The state after the last piece is detached, so it has no gradient.
void backward(Context& ctx, Recorded& layer) {
  const Tensor& dy = Tape::grad_of(layer.y);
  Tape::Sink dx;
  if (layer.x.requires_grad()) dx = Tape::sink(ctx, layer.x);
  std::vector<Tensor> dstate;
  for (const Tensor& t : layer.state_like) dstate.push_back(zeros_like(t));
  for (bool last = true; !layer.pieces.empty(); last = false) {
    Piece piece = std::move(layer.pieces.back());
    layer.pieces.pop_back();
    const Tensor x = layer.x.value().slice(piece.begin, piece.end);
    if (!piece.saved) {
      const Span span(ctx.tracer, "sequence.recompute");
      Tensor again = layer.y.value().slice(piece.begin, piece.end).like(MemClass::activations);
      piece.saved = layer.cell->forward(ctx, x, piece.before, again);
    }
    const Tensor into = dx.grad.defined() ? dx.grad.slice(piece.begin, piece.end) : Tensor();
    layer.cell->backward(
        ctx, {x, piece.saved.get(), dy.slice(piece.begin, piece.end), into, dx.grad.defined() ? dx.beta : 0.0f, last},
        dstate);
  }
}

}  // namespace

Var sequence_layer(Context& ctx, const SequenceLayer& layer, const Var& x, std::vector<Tensor>& state,
                   const SequenceOptions& options) {
  LMX_CHECK(!state.empty(), "a recurrent layer without state");
  const int64_t batch = state[0].dim(0), steps = batch && x.shape().rank() == 2 ? x.shape()[0] / batch : 0;
  if (steps == 0 || steps * batch != x.shape()[0]) {
    throw UserError(str("[", layer.name, "] x ", x.shape(), " and state ", state[0].shape(),
                        ": x must have T*B rows, B being the state's"));
  }
  auto recorded = std::make_shared<Recorded>(Recorded{x, {}, layer.cell, {}, state});
  Tensor y = ctx.empty({steps * batch, state[0].dim(1)}, x.value().dtype());
  std::vector<Var> inputs{x};
  for (const Var& w : layer.weights)
    if (w.defined()) inputs.push_back(w);
  const bool keeps =
      ctx.tape && std::any_of(inputs.begin(), inputs.end(), [](const Var& v) { return v.requires_grad(); });
  const int64_t length = segment_steps(options, steps, batch, ctx.device.kind);
  for (int64_t t = 0; t < steps; t += length) {
    Piece piece{t * batch, std::min(steps, t + length) * batch, {}, nullptr};
    if (options.checkpoint) piece.before = state;
    Tensor out = y.slice(piece.begin, piece.end);
    piece.saved = layer.cell->forward(ctx, x.value().slice(piece.begin, piece.end), state, out);
    if (options.checkpoint) piece.saved.reset();
    if (keeps) recorded->pieces.push_back(std::move(piece));
  }
  recorded->y = Var(std::move(y));
  if (keeps) {
    ctx.tape->record(layer.name, std::move(inputs), {recorded->y},
                     [&ctx, recorded](Tape&) { backward(ctx, *recorded); });
  }
  return recorded->y;
}

Tensor from_first(Context& ctx, const Tensor& first, int64_t rows) {
  Tensor all = ctx.empty({first.dim(0) + rows, first.dim(1)}, first.dtype());
  all.slice(0, first.dim(0)).copy_from(first);
  return all;
}

StepMatrix packed(Context& ctx, const Var& w, bool trans, int64_t rows) {
  const PackedMatrix& weight = w.cached<PackedMatrix>(PackedMatrix::layout(ctx, w.value(), trans, rows), [&] {
    const Span span(ctx.tracer, "sequence.pack");
    return PackedMatrix(ctx, w.value(), trans, rows);
  });
  return {&weight, weight.operand_memory(ctx, rows)};
}

void multiply_step(Context& ctx, const StepMatrix& w, const Tensor& x, Tensor& y, float beta) {
  const Span span(ctx.tracer, "sequence.recurrent_gemm");
  w.weight->multiply(ctx, x, y, beta, w.memory);
}

void project(Context& ctx, const Tensor& x, const Var& w, Tensor& out) {
  const Span span(ctx.tracer, "sequence.input_projection");
  gemm(ctx, x, false, ops::compute_copy(ctx, w), true, out);
}

void project_back(Context& ctx, const Tensor& dz, const Var& w, Tensor dx, float beta) {
  if (dx.defined()) gemm(ctx, dz, false, ops::compute_copy(ctx, w), false, dx, beta);
}

void add_weight_gradient(Context& ctx, const Var& w, const Tensor& a, const Tensor& b) {
  if (!w.requires_grad()) return;
  Tape::Sink sink = Tape::sink(ctx, w);
  gemm(ctx, a, true, b, false, sink.grad, sink.beta);
}

void add_bias_gradient(Context& ctx, const Var& bias, const Tensor& dz) {
  if (!bias.requires_grad()) return;
  Tape::Sink sink = Tape::sink(ctx, bias);
  ops::column_sums(ctx, dz, sink.grad, sink.beta);
}

Tensor output_gradients(Context& ctx, const SequenceCell::Piece& piece, const Tensor& dstate, DType kept) {
  const Tensor& dy = piece.dy;
  const int64_t rows = dy.dim(0), first = rows - dstate.dim(0);
  Tensor all = ctx.empty(dy.shape(), kept);
  const auto put = [&](const Tensor& from, int64_t begin) {
    Tensor to = all.slice(begin, begin + from.dim(0));
    kept == dy.dtype() ? to.copy_from(from) : to_compute(ctx, from, to);
  };
  if (piece.last) {
    put(dy, 0);
    return all;
  }
  Tensor last = dy.slice(first, rows).clone(MemClass::activations);
  add_tensor(ctx, last, dstate);
  if (first > 0) put(dy.slice(0, first), 0);
  put(last, first);
  return all;
}

}  // namespace lmx
