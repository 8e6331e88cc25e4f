// y_ij = x_ij / (1 - p) with probability 1 - p, else 0; dx likewise with the same mask.
//
// The mask is a pure function of (key, row id, column). The backward pass computes it again instead of storing it.
#include "ops/layers/dropout.h"

#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

constexpr int kColumnBits = 32 + 2;  // the number of a block in its row fits into one counter word

// The common part of forward and backward. x has `cols` columns and one row for each id.
struct Mask {
  DropMask mask;
  Uploaded<uint64_t> row_ids;
  int64_t cols;
};

// y, and its rounded copy in `operand`, if that is defined.
Tensor apply(Context& ctx, const Tensor& x, const Mask& m, const Tensor& operand = {}) {
  Tensor y = x.like(MemClass::activations);
  with_values("dropout", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Dropout<T>{x.data<T>(), y.data<T>(), m.mask, m.row_ids.data(), m.row_ids.size(), m.cols,
                               operand_target(ctx, operand)});
  });
  return y;
}

Var masked(Context& ctx, const Var& x, const Mask& mask) {
  LMX_CHECK(mask.cols >> kColumnBits == 0, "dropout of rows of ", mask.cols);
  Var out(apply(ctx, x.value(), mask));
  if (recording(ctx, {&x})) {
    // x is usually the result of a matrix product, whose backward multiplies its gradient.
    ctx.tape->record("dropout", {x}, {out}, [&ctx, x, out, mask](Tape&) {
      const Tensor& dy = Tape::grad_of(out);
      const Tensor operand = operand_beside(ctx, dy);
      Tape::accumulate(ctx, x, apply(ctx, dy, mask, operand), operand);
    });
  }
  return out;
}

bool active(const Context& ctx, double p) {
  if (!(p >= 0 && p < 1)) throw UserError(str("[dropout] probability ", p, ": must be in [0, 1)"));
  return ctx.training && p > 0;
}

}  // namespace

Var dropout(Context& ctx, const Var& x, double p, RandomKey key, const std::vector<uint64_t>& row_ids) {
  const Matrix m = fold(x.shape());
  if (static_cast<int64_t>(row_ids.size()) != m.rows) {
    throw UserError(str("[dropout] ", row_ids.size(), " row ids for x ", x.shape(), ": one for each of its ", m.rows,
                        " rows expected"));
  }
  return active(ctx, p) ? masked(ctx, x, {DropMask(p, key), ctx.upload(row_ids), m.cols}) : x;
}

Var dropout(Context& ctx, const Var& x, double p, RandomKey key) {
  return active(ctx, p) ? masked(ctx, x, {DropMask(p, key), ctx.upload(std::vector<uint64_t>{0}), x.value().numel()})
                        : x;
}

}  // namespace lmx
