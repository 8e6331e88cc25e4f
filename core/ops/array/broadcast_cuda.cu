// Broadcasting arithmetic, copies by a walk, selections, and the sums that undo a broadcast.
#include "backend/cuda/parts.cuh"
#include "backend/cuda/unroll.cuh"
#include "lmx/quads.cuh"
#include "ops/array/binary.h"
#include "ops/array/broadcast.h"
#include "ops/array/indexing.h"

namespace lmx::ops {
namespace {

// The positions of element i of the result in the operands of a walk.
template <size_t N>
struct Positions {
  __device__ Positions(const Walk<N>& walk, int64_t i) {
    for (size_t o = 0; o < N; ++o) at[o] = 0;
    // The indices of the walk's arrays are constants, because each thread would copy arrays with a variable index.
    LMX_UNROLL
    for (int d = Shape::kMaxRank - 1; d > 0; --d) {
      if (d >= walk.rank) continue;
      const cuda::Position p = cuda::position_of(i, walk.size[d]);
      for (size_t o = 0; o < N; ++o) at[o] += p.column * walk.stride[o][d];
      i = p.row;
    }
    for (size_t o = 0; o < N; ++o) at[o] += i * walk.stride[o][0];
  }
  int64_t at[N];
};

// Whether every operand has the elements of the result in the same order.
bool without_repetition(const Walk<2>& walk) {
  return walk.rank == 1 && walk.step(0) == 1 && walk.step(1) == 1;
}

template <class F, class T>
struct BinaryElement {
  Binary<F, T> a;
  __device__ void operator()(int64_t i) const {
    const Positions<2> p(a.walk, i);
    a.y[i] = F::value(a.a[p.at[0]], a.b[p.at[1]]);
  }
  bool aligned() const { return without_repetition(a.walk) && cuda::aligned_quads(a.a, a.b, a.y); }
  __device__ void quad(int64_t i) const {
    const cuda::Quad<T> x = cuda::quad_at(a.a + i), y = cuda::quad_at(a.b + i);
    cuda::Quad<T> z;
    for (int e = 0; e < cuda::kQuad; ++e) z.v[e] = F::value(x.v[e], y.v[e]);
    cuda::put_quad(a.y + i, z);
  }
};
template <class F, class First, class T>
struct BinaryBackwardElement {
  BinaryBackward<F, First, T> a;
  __device__ void operator()(int64_t i) const {
    const Positions<2> p(a.walk, i);
    const T x = a.a[p.at[0]], y = a.b[p.at[1]];
    a.dx[i] = slope(x, y, a.dy[i]);
  }
  bool aligned() const { return without_repetition(a.walk) && cuda::aligned_quads(a.a, a.b, a.dy, a.dx); }
  __device__ void quad(int64_t i) const {
    const cuda::Quad<T> x = cuda::quad_at(a.a + i), y = cuda::quad_at(a.b + i), dy = cuda::quad_at(a.dy + i);
    cuda::Quad<T> dx;
    for (int e = 0; e < cuda::kQuad; ++e) dx.v[e] = slope(x.v[e], y.v[e], dy.v[e]);
    cuda::put_quad(a.dx + i, dx);
  }
  __device__ static T slope(T x, T y, T dy) {
    if constexpr (First::value)
      return F::da(x, y, dy);
    else
      return F::db(x, y, dy);
  }
};
template <class T>
struct CopyElement {
  CopyWalk<T> a;
  __device__ void operator()(int64_t i) const { a.y[i] = a.x[Positions<1>(a.walk, i).at[0]]; }
};

// The same for a walk whose last dimension is contiguous in x, as that of permuted rows.
template <class T>
struct CopyRowElement : CopyElement<T> {
  bool aligned() const {
    const Walk<1>& walk = this->a.walk;
    bool whole = walk.step(0) == 1 && walk.size[walk.rank - 1] % cuda::kQuad == 0;
    for (int d = 0; d + 1 < walk.rank; ++d) whole = whole && walk.stride[0][d] % cuda::kQuad == 0;
    return whole && cuda::aligned_quads(this->a.x, this->a.y);
  }
  __device__ void quad(int64_t i) const {
    cuda::put_quad(this->a.y + i, cuda::quad_at(this->a.x + Positions<1>(this->a.walk, i).at[0]));
  }
};
template <class T>
void copy_walk(Context& ctx, const CopyWalk<T>& a) {
  cuda::launch_quads(ctx, a.kName, a.n, CopyRowElement<T>{{a}});
}

template <class T>
struct SelectElement {
  Select<T> a;
  __device__ void operator()(int64_t i) const {
    const Positions<3> p(a.walk, i);
    a.y[i] = a.condition[p.at[0]] != 0 ? a.a[p.at[1]] : a.b[p.at[2]];
  }
};

// Sums in double. A long row or column is divided into parts of fixed length, which are summed by blocks or threads of
// their own and added in order.
constexpr int64_t kColumnPart = 64;

// A block sums one part of one row.
template <class T>
__global__ void row_part_sums(const T* x, int64_t n, int64_t parts, double* sums) {
  cuda::wait_for_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) / parts, part = static_cast<int64_t>(blockIdx.x) % parts;
  const int64_t begin = part * cuda::kPartSize, end = begin + cuda::kPartSize < n ? begin + cuda::kPartSize : n;
  const double sum = cuda::block_sum_of(begin, end, [&](int64_t i) { return static_cast<double>(x[row * n + i]); });
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// y_i = factor * (parts[i] + parts[i + stride] + ...), where the parts of i begin at i / stride * stride * count.
template <class T>
struct AddParts {
  const double* parts;
  T* y;
  int64_t count, stride;
  double factor;
  __device__ void operator()(int64_t i) const {
    const double* at = parts + i / stride * stride * count + i % stride;
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += at[k * stride];
    y[i] = static_cast<T>(sum * factor);
  }
};

template <class T>
void sum_rows(Context& ctx, const SumRows<T>& a) {
  if (a.rows == 0) return;
  const int64_t parts = a.n > cuda::kPartSize ? (a.n + cuda::kPartSize - 1) / cuda::kPartSize : 1;
  Tensor sums = ctx.empty({a.rows * parts}, DType::f64);
  cuda::launch(ctx, a.kName, cuda::summing_grid(a.rows * parts, a.n), row_part_sums<T>, a.x, a.n, parts,
               sums.data<double>());
  launch_each(ctx, a.kName, a.rows, AddParts<T>{sums.data<double>(), a.y, parts, 1, a.factor});
}

// A thread sums one column of one part.
template <class T>
struct ColumnPartElement {
  SumColumns<T> a;
  int64_t parts;
  double* sums;  // (outer, parts, inner)
  __device__ void operator()(int64_t i) const {
    const int64_t column = i % a.inner, part = i / a.inner % parts, o = i / a.inner / parts;
    const int64_t begin = part * kColumnPart, end = begin + kColumnPart < a.size ? begin + kColumnPart : a.size;
    double sum = 0;
    for (int64_t r = begin; r < end; ++r) sum += static_cast<double>(a.x[(o * a.size + r) * a.inner + column]);
    sums[i] = sum;
  }
};

template <class T>
void sum_columns(Context& ctx, const SumColumns<T>& a) {
  const int64_t parts = a.size > kColumnPart ? (a.size + kColumnPart - 1) / kColumnPart : 1;
  Tensor sums = ctx.empty({a.outer * parts * a.inner}, DType::f64);
  launch_each(ctx, a.kName, sums.numel(), ColumnPartElement<T>{a, parts, sums.data<double>()});
  launch_each(ctx, a.kName, a.outer * a.inner, AddParts<T>{sums.data<double>(), a.y, parts, a.inner, a.factor});
}

template <class F>
KernelAdder add() {
  using No = std::false_type;
  return KernelAdder(Device::Kind::cuda, cuda::each_quad<BinaryElement<F, float>>,
                     cuda::each_quad<BinaryElement<F, double>>, cuda::each_quad<BinaryBackwardElement<F, No, float>>,
                     cuda::each_quad<BinaryBackwardElement<F, No, double>>);
}
template <class F>
KernelAdder add_first() {
  using Yes = std::true_type;
  return KernelAdder(Device::Kind::cuda, cuda::each_quad<BinaryBackwardElement<F, Yes, float>>,
                     cuda::each_quad<BinaryBackwardElement<F, Yes, double>>);
}

const KernelAdder adders[] = {add<Add>(),    add<Subtract>(),       add<Multiply>(),
                              add<Divide>(), add_first<Multiply>(), add_first<Divide>()};
const KernelAdder copies(Device::Kind::cuda, copy_walk<float>, copy_walk<double>);
const KernelAdder selections = cuda::each_kernels<SelectElement>();
const KernelAdder sums(Device::Kind::cuda, sum_rows<float>, sum_rows<double>, sum_columns<float>, sum_columns<double>);

}  // namespace
}  // namespace lmx::ops
