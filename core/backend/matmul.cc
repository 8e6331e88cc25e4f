#include "lmx/matmul.h"

#include "backend/convert.h"
#include "backend/counting/device.h"
#include "backend/gemm_kernel.h"
#include "backend/onednn.h"
#include "backend/panel_gemm.h"
#include "lmx/error.h"
#include "lmx/operand.h"
#include "lmx/parallel.h"
#include "tensor/planned_products.h"

namespace lmx {
namespace {

// Rows and columns after every dimension except the last is folded into the rows.
struct Matrix {
  int64_t rows, cols;
};
Matrix fold(const Tensor& t) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < t.rank(); ++i) rows *= t.dim(i);
  return {rows, t.rank() ? t.dim(-1) : 1};
}

[[noreturn]] void mismatch(const Tensor& a, bool ta, const Tensor& b, bool tb, const std::string& why) {
  throw UserError(str("[matmul] a ", describe(a), ta ? " transposed" : "", " x b ", describe(b),
                      tb ? " transposed" : "", ": ", why));
}

struct Factor {
  const Tensor& matrix;
  bool transposed;
};
struct Added {
  float beta;                    // times the output's values
  const Tensor* bias = nullptr;  // to every row
  bool* bias_added = nullptr;    // see GemmCall
};

// Whether products of this type are made of parts in bf16.
bool multiplies_parts(const Context& ctx, DType type) {
  return type == DType::f32 && ctx.products == F32Products::bf16x3 && ctx.device.kind == Device::Kind::cuda;
}

// Counts c (m, n) = op(a) op(b) of inner size k.
void record_product(const Context& ctx, int64_t m, int64_t n, int64_t k, const Tensor& c) {
  if (StepRecord* record = step_record(ctx)) record->product({.m = m, .n = n, .k = k}, c.raw(), c.bytes());
}

Tensor memory_of_parts(Context& ctx, int64_t elements, MemClass c = MemClass::activations) {
  return ctx.empty({3 * elements}, DType::bf16, c);
}

// `parts`: memory_of_parts() of the operand.
void split(Context& ctx, const Factor& operand, bool left, Tensor& parts) {
  const Tensor& t = operand.matrix;
  LMX_CHECK(t.dtype() == DType::f32 && parts.numel() == 3 * t.numel(), describe(t), " in parts ", describe(parts));
  const int64_t width = left != operand.transposed ? fold(t).cols : t.numel();
  run_kernel(ctx, SplitOperand<float>{t.data<float>(), parts.data<bfloat16>(), t.numel(), width, left});
}

Tensor split(Context& ctx, const Factor& operand, bool left) {
  Tensor parts = memory_of_parts(ctx, operand.matrix.numel());
  split(ctx, operand, left, parts);
  return parts;
}

// `call` with operands in parts.
void run_parts(Context& ctx, GemmCall call, const Tensor& a, const Tensor& b) {
  call.a = a.raw();
  call.b = b.raw();
  call.a_type = call.b_type = DType::bf16;
  call.k *= 3;
  call.products = F32Products::exact;
  run_kernel(ctx, Gemm<bfloat16>{call});
}

void multiply(Context& ctx, const Factor& left, const Factor& right, Tensor& c, const Added& add) {
  const Tensor &a = left.matrix, &b = right.matrix;
  const bool trans_a = left.transposed, trans_b = right.transposed;
  const Matrix fa = fold(a), fb = fold(b), fc = fold(c);
  const int64_t m = trans_a ? fa.cols : fa.rows, k = trans_a ? fa.rows : fa.cols;
  const int64_t kb = trans_b ? fb.cols : fb.rows, n = trans_b ? fb.rows : fb.cols;
  if (k != kb) mismatch(a, trans_a, b, trans_b, str("inner sizes ", k, " and ", kb, " differ"));
  if (fc.rows != m || fc.cols != n) {
    mismatch(a, trans_a, b, trans_b, str("the product is (", m, ", ", n, "), the output ", c.shape()));
  }
  const DType out = a.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const DType type = a.dtype() == DType::f32 ? b.dtype() : a.dtype();
  const bool beside_f32 = ctx.device.kind == Device::Kind::cpu && multiplies_in_f32(type);
  const auto fits = [&](DType t) { return t == type || (t == DType::f32 && beside_f32); };
  if (!fits(a.dtype()) || !fits(b.dtype()) || (c.dtype() != out && c.dtype() != type)) {
    mismatch(a, trans_a, b, trans_b,
             str("types must be equal and the output ", name_of(out), ", not ", name_of(c.dtype())));
  }
  const bool adds_rounded = ctx.device.kind == Device::Kind::cuda || !multiplies_in_f32(type);
  LMX_CHECK(c.dtype() == out || (!add.bias && (add.beta == 0 || adds_rounded)), "an addition to ", describe(c));
  if (m == 0 || n == 0) return;
  if (add.bias) {
    LMX_CHECK(gemm_adds_bias(a.dtype()) && k > 0 && add.bias->dtype() == out && add.bias->numel() == n, "bias ",
              describe(*add.bias), " of a product (", m, ", ", k, ") x (", k, ", ", n, ')');
  }
  if (k == 0) {
    if (add.beta == 0) c.zero();
    return;
  }
  const void* bias = add.bias ? add.bias->raw() : nullptr;
  const F32Products products = type == DType::f32 ? ctx.products : F32Products::exact;
  const GemmCall call{a.raw(), a.dtype(), trans_a,  b.raw(),   b.dtype(), trans_b, c.raw(),       m,
                      n,       k,         add.beta, c.dtype(), products,  bias,    add.bias_added};
  if (ctx.device.counts && add.bias) *add.bias_added = true;
  record_product(ctx, m, n, k, c);
  if (multiplies_parts(ctx, type)) return run_parts(ctx, call, split(ctx, left, true), split(ctx, right, false));
  switch (type) {
    case DType::f64:
      return run_kernel(ctx, Gemm<double>{call});
    case DType::bf16:
      return run_kernel(ctx, Gemm<bfloat16>{call});
    case DType::f16:
      return run_kernel(ctx, Gemm<float16>{call});
    default:
      return run_kernel(ctx, Gemm<float>{call});
  }
}

}  // namespace

void gemm(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c, float beta) {
  multiply(ctx, {a, trans_a}, {b, trans_b}, c, {beta});
}

bool gemm_with_bias(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) {
  bool added = true;
  multiply(ctx, {x, false}, {w, true}, y, {0, &bias, &added});
  return added;
}

namespace {

bool is_computed(const Context& ctx, const Tensor& t) {
  return t.dtype() == DType::f64 || t.dtype() == ctx.compute || ctx.compute == DType::f64;
}

}  // namespace

void to_compute(Context& ctx, const Tensor& t, Tensor to) {
  if (is_computed(ctx, t)) return to.copy_from(t);
  LMX_CHECK(t.dtype() == DType::f32 && to.dtype() == ctx.compute && to.shape() == t.shape(), describe(t),
            " rounded into ", describe(to));
  if (ctx.compute == DType::bf16)
    run_kernel(ctx, Convert<float, bfloat16>{t.data<float>(), to.data<bfloat16>(), t.numel()});
  else
    run_kernel(ctx, Convert<float, float16>{t.data<float>(), to.data<float16>(), t.numel()});
}

Tensor to_compute(Context& ctx, const Tensor& t) {
  if (is_computed(ctx, t)) return t;
  if (t.dtype() != DType::f32) {
    LMX_CHECK(ctx.compute == DType::f32, "a ", describe(t), " where products are ", name_of(ctx.compute));
    return widened(ctx, t.raw(), t.dtype(), t.numel()).reshape(t.shape());
  }
  Tensor out = ctx.empty(t.shape(), ctx.compute);
  to_compute(ctx, t, out);
  return out;
}

void widen(Context& ctx, const Tensor& t, Tensor to) {
  LMX_CHECK(to.dtype() == DType::f32 && to.shape() == t.shape(), describe(t), " widened into ", describe(to));
  widen(ctx, t.raw(), t.dtype(), t.numel(), to.data<float>());
}

DType operand_type(DType compute) {
  return multiplies_in_f32(compute) ? DType::f32 : compute;
}

Tensor operand_memory(Context& ctx, const Tensor& t) {
  if (is_computed(ctx, t) || t.dtype() != DType::f32) return {};
  return ctx.empty(t.shape(), ctx.device.kind == Device::Kind::cpu ? operand_type(ctx.compute) : ctx.compute);
}

Tensor as_operand(Context& ctx, const Tensor& t, const Tensor& memory) {
  if (!memory.defined()) return to_compute(ctx, t);
  Tensor out = memory;
  if (out.dtype() != DType::f32) {
    to_compute(ctx, t, out);
  } else if (ctx.device.counts) {
    return out;
  } else if (ctx.compute == DType::bf16) {
    round_to_bf16(t.data<float>(), out.data<float>(), t.numel());
  } else {
    round_to_f16(t.data<float>(), out.data<float>(), t.numel());
  }
  return out;
}

Tensor as_operand(Context& ctx, const Tensor& t) {
  return as_operand(ctx, t, operand_memory(ctx, t));
}

namespace {

template <class From, class To>
void run_transpose(Context& ctx, const Tensor& t, Tensor& out) {
  run_kernel(ctx, Transpose<From, To>{t.data<From>(), out.data<To>(), out.dim(1), out.dim(0)});
}

}  // namespace

Tensor transposed(Context& ctx, const Tensor& t, DType type) {
  const Matrix m = fold(t);
  Tensor out = ctx.empty({m.cols, m.rows}, type);
  const auto is = [&](DType from, DType to) { return t.dtype() == from && type == to; };
  if (is(DType::f32, DType::f32))
    run_transpose<float, float>(ctx, t, out);
  else if (is(DType::f32, DType::bf16))
    run_transpose<float, bfloat16>(ctx, t, out);
  else if (is(DType::f32, DType::f16))
    run_transpose<float, float16>(ctx, t, out);
  else if (is(DType::bf16, DType::bf16))
    run_transpose<bfloat16, bfloat16>(ctx, t, out);
  else if (is(DType::f16, DType::f16))
    run_transpose<float16, float16>(ctx, t, out);
  else if (is(DType::f64, DType::f64))
    run_transpose<double, double>(ctx, t, out);
  else
    LMX_CHECK(false, "transposition of ", describe(t), " to ", name_of(type));
  return out;
}

void matmul(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c, float beta) {
  gemm(ctx, to_compute(ctx, a), trans_a, to_compute(ctx, b), trans_b, c, beta);
}

// One of four layouts: oneDNN's blocked copy; a copy in panels; on devices with products bf16x3 the parts of w; or, for
// f64 and on devices, w itself or a rounded copy.
struct PackedMatrix::Impl {
  enum class Layout { blocked, panels, parts, plain };
  Layout layout = Layout::plain;
  Tensor matrix;      // the blocked bytes, the panels, the parts, or w
  bool trans = true;  // parts: w is (N, K); plain: `matrix` is
  int64_t k = 0, n = 0;
  // blocked: the number of the layout, the threads for which it was chosen, and the type of the product
  int number = 0;
  int threads = num_threads();
  dnnl::memory::data_type type{};
};

PackedMatrix::~PackedMatrix() = default;
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;

namespace {

// The type in which products run if `compute` is requested.
dnnl::memory::data_type product_type(DType compute) {
  return operand_type(compute) == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// The size of op(w): (K, N).
Matrix product_shape(const Tensor& w, bool trans) {
  const Matrix m = fold(w);
  return trans ? Matrix{m.cols, m.rows} : m;
}

bool in_parts(const Context& ctx, const Tensor& w) {
  return multiplies_parts(ctx, ctx.compute) && w.dtype() == DType::f32 && w.numel() > 0;
}

bool stays_plain(const Context& ctx, const Tensor& w) {
  return ctx.device.kind != Device::Kind::cpu || w.dtype() != DType::f32;
}

// The product of `rows` rows that reads op(w) (K, N) in blocks; null if panels are faster.
const DnnlMatmul* blocked_product(const Context& ctx, const Matrix& w, int64_t rows, int threads) {
  return packed_matmul({rows, w.cols, w.rows, false, false, true, false, product_type(ctx.compute), threads});
}

}  // namespace

std::string PackedMatrix::layout(const Context& ctx, const Tensor& w, bool trans, int64_t rows) {
  const std::string key =
      str("packed ", name_of(ctx.compute), in_parts(ctx, w) ? " parts" : "", trans ? " transposed" : "");
  if (stays_plain(ctx, w) || planned_products()) return key;
  const int threads = num_threads();
  const DnnlMatmul* product = blocked_product(ctx, product_shape(w, trans), rows, threads);
  return product ? str(key, " layout ", product->layout(), " threads ", threads) : key + " panels";
}

PackedMatrix::PackedMatrix(Context& ctx, const Tensor& w, bool trans, int64_t rows) : impl_(std::make_unique<Impl>()) {
  const Matrix m = product_shape(w, trans);
  Impl& p = *impl_;
  p.k = m.rows;
  p.n = m.cols;
  // The copy counts in the memory of the rank whose value it is a copy of, whichever of the ranks that share it packs.
  Context owner = ctx;
  owner.allocator = w.allocator();
  p.trans = trans;
  if (in_parts(ctx, w)) {
    p.layout = Impl::Layout::parts;
    p.matrix = memory_of_parts(owner, w.numel(), MemClass::parameters);
    split(owner, {w, trans}, false, p.matrix);
  } else if (stays_plain(ctx, w)) {
    // A GPU multiplies few rows faster by (K, N) than by (N, K): an RHN's layer in 6.0 microseconds in place of 6.5.
    p.trans = trans && (w.dtype() == DType::f64 || !stores_operands(ctx.device.kind, ctx.compute));
    p.matrix = trans && !p.trans ? transposed(owner, w, ctx.compute) : to_compute(owner, w);
  } else if (planned_products()) {
    // oneDNN cannot be asked about another processor. Its blocks have the size of the matrix, up to padded edges.
    p.layout = Impl::Layout::panels;
    p.matrix = owner.empty({p.k, p.n}, operand_type(ctx.compute), MemClass::parameters);
  } else if (const DnnlMatmul* product = blocked_product(ctx, m, rows, p.threads)) {
    p.layout = Impl::Layout::blocked;
    p.number = product->layout();
    p.type = product->key().type;
    // oneDNN rounds f32 to bf16 while it packs. If products use rounded numbers as f32, they are rounded here.
    const Tensor from = multiplies_in_f32(ctx.compute) ? as_operand(ctx, w) : w;
    p.matrix =
        packed_right_side(owner, from.raw(), dnnl::memory::data_type::f32, trans, *product, MemClass::parameters);
  } else {
    const Tensor rounded = as_operand(ctx, w);  // these products run in f32
    p.layout = Impl::Layout::panels;
    p.matrix = owner.empty({panel_elements(p.k, p.n)}, DType::f32, MemClass::parameters);
    if (!ctx.device.counts) pack_panels(rounded.data<float>(), trans, p.k, p.n, p.matrix.data<float>());
  }
}

Tensor PackedMatrix::operand_memory(Context& ctx, int64_t rows) const {
  return impl_->layout == Impl::Layout::parts ? memory_of_parts(ctx, rows * impl_->k) : Tensor();
}

void PackedMatrix::multiply(Context& ctx, const Tensor& x, Tensor& y, float beta, const Tensor& memory) const {
  const Impl& p = *impl_;
  const Matrix m = fold(x);
  if (m.cols != p.k || fold(y).cols != p.n || fold(y).rows != m.rows) {
    throw UserError(str("[matmul] x ", describe(x), " x packed (", p.k, ", ", p.n, ") into ", describe(y)));
  }
  if (p.layout == Impl::Layout::plain) return gemm(ctx, x, false, p.matrix, p.trans, y, beta);
  if (p.layout == Impl::Layout::parts) {
    LMX_CHECK(y.dtype() == DType::f32, "a product in parts into ", describe(y));
    if (m.rows == 0) return;
    Tensor parts = memory.defined() ? memory : operand_memory(ctx, m.rows);
    split(ctx, {x, false}, true, parts);
    record_product(ctx, m.rows, p.n, p.k, y);
    const GemmCall call{x.raw(), x.dtype(), false, p.matrix.raw(), p.matrix.dtype(), p.trans,           y.raw(),
                        m.rows,  p.n,       p.k,   beta,           y.dtype(),        F32Products::exact};
    return run_parts(ctx, call, parts, p.matrix);
  }
  const bool widens = x.dtype() != DType::f32 && multiplies_in_f32(x.dtype());
  const Tensor operand = widens ? widened(ctx, x.raw(), x.dtype(), x.numel()) : x;
  if (StepRecord* record = step_record(ctx)) record->product({.m = m.rows, .n = p.n, .k = p.k, .packed = true});
  if (p.layout == Impl::Layout::panels) {
    if (!ctx.device.counts)
      multiply_panels(operand.data<float>(), p.matrix.data<float>(), y.data<float>(), m.rows, p.n, p.k, beta);
  } else {
    const DnnlMatmul& product = dnnl_matmul({m.rows, p.n, p.k, false, false, true, beta != 0, p.type, p.threads});
    LMX_CHECK(product.layout() == p.number, "a matrix packed in another layout than that for ", describe(x));
    product.execute(ctx, operand.raw(), p.matrix.raw(), y.data<float>());
  }
}

int64_t PackedMatrix::bytes() const {
  return impl_->layout == Impl::Layout::plain ? 0 : impl_->matrix.bytes();
}

}  // namespace lmx
