// y_ij = x_ij / (1 - p) with probability 1 - p, else 0; dx likewise with the same mask.
//
// The mask is a pure function of (key, row id, column). The backward pass computes it again instead of storing it.
#include "ops/layers/dropout.h"

#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

constexpr int kColumnBits = 32 + 2;  // the number of a block in its row fits into one counter word

// y, and its rounded copy in `operand`, if that is defined.
Tensor apply(Context& ctx, const Tensor& x, const RowMask& m, const Tensor& operand = {}) {
  Tensor y = x.like(MemClass::activations);
  with_values("dropout", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Dropout<T>{x.data<T>(), y.data<T>(), m.mask, m.row_ids.data(), m.row_ids.size(), m.cols,
                               operand_target(ctx, operand)});
  });
  return y;
}

Var masked(Context& ctx, const Var& x, const RowMask& mask) {
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

}  // namespace

bool ops::drops(const Context& ctx, const char* op, double p) {
  if (!(p >= 0 && p < 1)) throw UserError(str('[', op, "] probability ", p, ": must be in [0, 1)"));
  return ctx.training && p > 0;
}

void ops::check_row_ids(const char* op, const std::vector<uint64_t>& row_ids, const Shape& x) {
  const int64_t rows = fold(x).rows;
  if (static_cast<int64_t>(row_ids.size()) == rows) return;
  throw UserError(
      str('[', op, "] ", row_ids.size(), " row ids for x ", x, ": one for each of its ", rows, " rows expected"));
}

RowMask::RowMask(Context& ctx, const DropMask& of_row, std::vector<uint64_t> ids, int64_t columns)
    : mask(of_row), row_ids(ctx.upload(std::move(ids))), cols(columns) {
  LMX_CHECK(cols >> kColumnBits == 0, "dropout of rows of ", cols);
}

Var dropout(Context& ctx, const Var& x, double p, RandomKey key, const std::vector<uint64_t>& row_ids) {
  check_row_ids("dropout", row_ids, x.shape());
  return drops(ctx, "dropout", p) ? masked(ctx, x, RowMask(ctx, DropMask(p, key), row_ids, fold(x.shape()).cols)) : x;
}

Var dropout(Context& ctx, const Var& x, double p, RandomKey key) {
  return drops(ctx, "dropout", p) ? masked(ctx, x, RowMask(ctx, DropMask(p, key), {0}, x.value().numel())) : x;
}

}  // namespace lmx
