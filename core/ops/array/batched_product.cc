// y = a b over the last two dimensions, for each index of the other dimensions, which broadcast:
//
//   da = dy b^T, db = a^T dy;  with b transposed (y = a b^T): da = dy b, db = dy^T a
//
// Both gradients are summed over the indices for which the operand repeats. If b has two dimensions, the rows of all
// indices of a are multiplied in one product, and b's gradient is also one product.
#include "lmx/array_ops.h"
#include "ops/array/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

// The dimensions before the last two.
Shape batch_of(const Shape& shape) {
  return Shape(shape.dims().first(static_cast<size_t>(shape.rank() - 2)));
}

Shape with_matrix(const Shape& batch, int64_t rows, int64_t cols) {
  std::vector<int64_t> sizes(batch.dims().begin(), batch.dims().end());
  sizes.insert(sizes.end(), {rows, cols});
  return Shape(std::span<const int64_t>(sizes));
}

struct Operand {
  const Tensor& values;
  bool transposed;
  Tensor matrix(int64_t index) const {  // (rows, cols), shares the storage
    const int r = values.rank();
    const int64_t rows = values.dim(r - 2), cols = values.dim(r - 1);
    return values.reshape({batch_of(values.shape()).numel() * rows, cols}).slice(index * rows, (index + 1) * rows);
  }
};

// out (batch, M, N) = op(a) op(b). On the CPU threads share many small products; each large product runs on all
// threads.
void multiply_all(Context& ctx, const Operand& a, const Operand& b, const Shape& batch, Tensor& out) {
  const Shape batch_a = batch_of(a.values.shape()), batch_b = batch_of(b.values.shape());
  const Walk<2> walk = walk_of<2>(batch, {&batch_a, &batch_b});
  const auto inner = static_cast<size_t>(walk.rank - 1);
  const int64_t step_a = walk.stride[0][inner], step_b = walk.stride[1][inner];
  const Operand result{out, false};
  constexpr int64_t kLarge = 1 << 20;  // multiply-adds
  const int64_t macs = out.numel() / std::max<int64_t>(1, batch.numel()) * a.values.dim(a.transposed ? -2 : -1);
  const bool shared = macs <= kLarge && ctx.device.kind == Device::Kind::cpu;
  parallel_for(batch.numel(), shared ? std::max<int64_t>(1, kGrain / std::max<int64_t>(macs, 1)) : batch.numel(),
               [&](int64_t begin, int64_t end) {
                 for_runs(walk, begin, end, [&](int64_t at, const std::array<int64_t, 2>& o, int64_t n) {
                   for (int64_t i = 0; i < n; ++i) {
                     Tensor c = result.matrix(at + i);
                     gemm(ctx, a.matrix(o[0] + i * step_a), a.transposed, b.matrix(o[1] + i * step_b), b.transposed, c);
                   }
                 });
               });
}

struct Product {
  Var a, b, out;
  Tensor ac, bc;  // in the type of matrix products
  Shape batch;
  bool transpose_b;
  bool flat() const { return bc.rank() == 2; }  // b is one matrix for all rows of a
};

Tensor forward(Context& ctx, const Product& p, int64_t m, int64_t n) {
  Tensor y = ctx.empty(with_matrix(p.batch, m, n), p.a.value().dtype());
  if (p.flat()) {
    gemm(ctx, p.ac, false, p.bc, p.transpose_b, y);
  } else {
    multiply_all(ctx, {p.ac, false}, {p.bc, p.transpose_b}, p.batch, y);
  }
  return y;
}

void backward(Context& ctx, const Product& p) {
  const Tensor dy = to_compute(ctx, Tape::grad_of(p.out));
  const DType type = p.a.value().dtype();
  const auto whole = [&](const Shape& s) { return with_matrix(p.batch, s[s.rank() - 2], s[s.rank() - 1]); };
  if (p.a.requires_grad()) {
    Tensor da = ctx.empty(whole(p.a.shape()), type);
    if (p.flat()) {
      gemm(ctx, dy, false, p.bc, !p.transpose_b, da);
    } else {
      multiply_all(ctx, {dy, false}, {p.bc, !p.transpose_b}, p.batch, da);
    }
    Tape::accumulate(ctx, p.a, reduce_to(ctx, da, p.a.shape()));
  }
  if (!p.b.requires_grad()) return;
  const Tensor &left = p.transpose_b ? dy : p.ac, &right = p.transpose_b ? p.ac : dy;
  if (p.flat()) {
    Tensor db = ctx.empty(p.b.shape(), type);
    gemm(ctx, left, true, right, false, db);
    Tape::accumulate(ctx, p.b, db);
  } else {
    Tensor db = ctx.empty(whole(p.b.shape()), type);
    multiply_all(ctx, {left, true}, {right, false}, p.batch, db);
    Tape::accumulate(ctx, p.b, reduce_to(ctx, db, p.b.shape()));
  }
}

}  // namespace

Var matmul(Context& ctx, const Var& a, const Var& b, bool transpose_b) {
  const Shape &sa = a.shape(), &sb = b.shape();
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[matmul] a ", sa, " and b ", sb, transpose_b ? " transposed: " : ": ", why));
  };
  if (sa.rank() < 2 || sb.rank() < 2) fail("two dimensions at least expected of both");
  const int64_t m = sa[sa.rank() - 2], k = sa[sa.rank() - 1];
  const int64_t kb = sb[sb.rank() - (transpose_b ? 1 : 2)], n = sb[sb.rank() - (transpose_b ? 2 : 1)];
  if (k != kb) fail(str("inner sizes ", k, " and ", kb, " differ"));
  check_same_type("matmul", "a", a.value(), "b", b.value());
  const Shape batch_a = batch_of(sa), batch_b = batch_of(sb);
  const Shape batch = broadcast_shape("matmul", "the batch of a", batch_a, "that of b", batch_b);
  Product p{a, b, {}, to_compute(ctx, a.value()), to_compute(ctx, b.value()), batch, transpose_b};
  p.out = Var(forward(ctx, p, m, n));
  Var out = p.out;
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record("matmul", {a, b}, {out}, [&ctx, p = std::move(p)](Tape&) { backward(ctx, p); });
  }
  return out;
}

}  // namespace lmx
