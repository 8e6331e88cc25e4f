#include "lmx/matmul.h"

#include "backend/convert.h"
#include "backend/gemm_kernel.h"
#include "backend/onednn.h"
#include "backend/panel_gemm.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx {
namespace {

// Rows and columns when every dimension but the last is folded into the rows.
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

}  // namespace

void gemm(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c, float beta) {
  const Matrix fa = fold(a), fb = fold(b), fc = fold(c);
  const int64_t m = trans_a ? fa.cols : fa.rows, k = trans_a ? fa.rows : fa.cols;
  const int64_t kb = trans_b ? fb.cols : fb.rows, n = trans_b ? fb.rows : fb.cols;
  if (k != kb) mismatch(a, trans_a, b, trans_b, str("inner sizes ", k, " and ", kb, " differ"));
  if (fc.rows != m || fc.cols != n) {
    mismatch(a, trans_a, b, trans_b, str("the product is (", m, ", ", n, "), the output ", c.shape()));
  }
  const DType out = a.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (a.dtype() != b.dtype() || c.dtype() != out) {
    mismatch(a, trans_a, b, trans_b,
             str("types must be equal and the output ", name_of(out), ", not ", name_of(c.dtype())));
  }
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta == 0) c.zero();
    return;
  }
  kernel<GemmKernel>("gemm", ctx.device, a.dtype())(ctx, {a.raw(), trans_a, b.raw(), trans_b, c.raw(), m, n, k, beta});
}

Tensor to_compute(Context& ctx, const Tensor& t) {
  if (t.dtype() == DType::f64 || t.dtype() == ctx.compute || ctx.compute == DType::f64) return t;
  if (t.dtype() != DType::f32) {
    LMX_CHECK(ctx.compute == DType::f32, "a ", describe(t), " where products are ", name_of(ctx.compute));
    return t.to(DType::f32);
  }
  Tensor out = ctx.empty(t.shape(), ctx.compute);
  if (ctx.compute == DType::bf16) {
    to_bf16(t.data<float>(), out.data<bfloat16>(), t.numel());
  } else {
    to_f16(t.data<float>(), out.data<float16>(), t.numel());
  }
  return out;
}

Tensor transposed(Context& ctx, const Tensor& t, DType type) {
  const Matrix m = fold(t);
  Tensor out = ctx.empty({m.cols, m.rows}, type);
  if (t.dtype() == DType::f32 && type == DType::f32) {
    transpose(t.data<float>(), out.data<float>(), m.rows, m.cols);
  } else if (t.dtype() == DType::f32 && type == DType::bf16) {
    transpose(t.data<float>(), out.data<bfloat16>(), m.rows, m.cols);
  } else if (t.dtype() == DType::bf16 && type == DType::bf16) {
    transpose(t.data<bfloat16>(), out.data<bfloat16>(), m.rows, m.cols);
  } else if (t.dtype() == DType::f64 && type == DType::f64) {
    transpose(t.data<double>(), out.data<double>(), m.rows, m.cols);
  } else {
    LMX_CHECK(t.dtype() != type || type == DType::f16, "transposition of ", describe(t));
    const Tensor same = t.to(type);
    if (type != DType::f16) return transposed(ctx, same, type);
    transpose(same.data<float16>(), out.data<float16>(), m.rows, m.cols);
  }
  return out;
}

void matmul(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c, float beta) {
  gemm(ctx, to_compute(ctx, a), trans_a, to_compute(ctx, b), trans_b, c, beta);
}

// One of: oneDNN's blocked copy; a copy in panels; or, for f64 and on devices, w itself.
struct PackedMatrix::Impl {
  enum class Layout { blocked, panels, plain };
  Layout layout = Layout::plain;
  Tensor matrix;      // the blocked bytes, the panels, or w
  bool trans = true;  // plain: w is (N, K)
  int64_t k = 0, n = 0;
  // blocked: which layout, and the threads that it was chosen for
  int number = 0;
  int threads = num_threads();
};

PackedMatrix::~PackedMatrix() = default;
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;

namespace {

dnnl::memory::data_type dnnl_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// w (f32) in the layout that `product` wants, rounded to its type on the way.
Tensor reordered(Context& ctx, const Tensor& w, bool trans, const DnnlMatmul& product, int64_t k, int64_t n) {
  return with_onednn(
      [&] {
        return str("lay ", describe(w), trans ? " transposed" : "", " out for products in ", name_of(ctx.compute));
      },
      [&] {
        using Tag = dnnl::memory::format_tag;
        const dnnl::memory::desc plain({k, n}, dnnl::memory::data_type::f32, trans ? Tag::ba : Tag::ab);
        const auto bytes = static_cast<int64_t>(product.weights_desc().get_size());
        Tensor out = ctx.empty({bytes}, DType::u8, MemClass::parameters);
        dnnl::memory from(plain, cpu_engine(), const_cast<void*>(w.raw())),
            to(product.weights_desc(), cpu_engine(), out.raw());
        dnnl::stream stream(cpu_engine());
        dnnl::reorder(from, to).execute(stream, from, to);
        stream.wait();
        return out;
      });
}

// op(w): (K, N).
Matrix product_shape(const Tensor& w, bool trans) {
  const Matrix m = fold(w);
  return trans ? Matrix{m.cols, m.rows} : m;
}

bool stays_plain(const Context& ctx, const Tensor& w) {
  return ctx.device.kind != Device::Kind::cpu || w.dtype() != DType::f32;
}

// The product of `rows` rows that takes op(w) (K, N) in blocks; null where panels are better.
const DnnlMatmul* blocked_product(const Context& ctx, const Matrix& w, int64_t rows, int threads) {
  const bool hardware = ctx.compute == DType::f32 || (ctx.compute == DType::bf16 && cpu_has_bf16());
  if (!hardware) return nullptr;
  const auto product = [&](int64_t m) -> const DnnlMatmul& {
    return dnnl_matmul({m, w.cols, w.rows, false, false, true, false, dnnl_type(ctx.compute), threads});
  };
  // Which kernels there are does not depend on the rows; products for every number of them need not be built to learn
  // that they are not wanted.
  constexpr int64_t kAnyRows = 32;
  if (ctx.compute == DType::f32 && !product(kAnyRows).brgemm()) return nullptr;
  return &product(rows);
}

}  // namespace

std::string PackedMatrix::layout(const Context& ctx, const Tensor& w, bool trans, int64_t rows) {
  const std::string key = str("packed ", name_of(ctx.compute), trans ? " transposed" : "");
  if (stays_plain(ctx, w)) return key;
  const int threads = num_threads();
  const DnnlMatmul* product = blocked_product(ctx, product_shape(w, trans), rows, threads);
  return product ? str(key, " layout ", product->layout(), " threads ", threads) : key + " panels";
}

PackedMatrix::PackedMatrix(Context& ctx, const Tensor& w, bool trans, int64_t rows) : impl_(std::make_unique<Impl>()) {
  const Matrix m = product_shape(w, trans);
  Impl& p = *impl_;
  p.k = m.rows;
  p.n = m.cols;
  if (stays_plain(ctx, w)) {
    p.matrix = to_compute(ctx, w);
    p.trans = trans;
  } else if (const DnnlMatmul* product = blocked_product(ctx, m, rows, p.threads)) {
    p.layout = Impl::Layout::blocked;
    p.number = product->layout();
    p.matrix = reordered(ctx, w, trans, *product, p.k, p.n);
  } else {
    // Rounded once here, then kept in f32, in which these products run.
    const Tensor rounded = to_compute(ctx, w).to(DType::f32);
    p.layout = Impl::Layout::panels;
    p.matrix = ctx.empty({panel_floats(p.k, p.n)}, DType::f32, MemClass::parameters);
    pack_panels(rounded.data<float>(), trans, p.k, p.n, p.matrix.data<float>());
  }
}

void PackedMatrix::multiply(Context& ctx, const Tensor& x, Tensor& y, float beta) const {
  const Impl& p = *impl_;
  const Matrix m = fold(x);
  if (m.cols != p.k || fold(y).cols != p.n || fold(y).rows != m.rows) {
    throw UserError(str("[matmul] x ", describe(x), " x packed (", p.k, ", ", p.n, ") into ", describe(y)));
  }
  if (p.layout == Impl::Layout::plain) {
    gemm(ctx, x, false, p.matrix, p.trans, y, beta);
  } else if (p.layout == Impl::Layout::panels) {
    const Tensor wide = x.to(DType::f32);
    multiply_panels(wide.data<float>(), p.matrix.data<float>(), y.data<float>(), m.rows, p.n, p.k, beta);
  } else {
    const DnnlMatmul& product =
        dnnl_matmul({m.rows, p.n, p.k, false, false, true, beta != 0, dnnl_type(x.dtype()), p.threads});
    LMX_CHECK(product.layout() == p.number, "a matrix packed in another layout than that for ", describe(x));
    product.execute(ctx, x.raw(), p.matrix.raw(), y.raw());
  }
}

int64_t PackedMatrix::bytes() const {
  return impl_->layout == Impl::Layout::plain ? 0 : impl_->matrix.bytes();
}

}  // namespace lmx
