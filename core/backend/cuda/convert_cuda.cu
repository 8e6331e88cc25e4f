#include "backend/convert.h"
#include "lmx/quads.cuh"

namespace lmx {
namespace {

template <class From, class To>
struct ConvertElement {
  Convert<From, To> a;
  bool aligned() const { return cuda::aligned_quads(a.from, a.to); }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    From from[N];
    To to[N];
    cuda::elements_at(a.from + i, from);
    for (int e = 0; e < N; ++e) to[e] = static_cast<To>(from[e]);
    cuda::put_elements(a.to + i, to);
  }
};

template <class T>
struct SplitElement {
  SplitOperand<T> a;
  bool aligned() const { return cuda::aligned_quads(a.from, a.to) && a.width % cuda::kQuad == 0; }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    T x[N];
    bfloat16 hi[N], lo[N];
    cuda::elements_at(a.from + i, x);
    for (int e = 0; e < N; ++e) {
      hi[e] = bfloat16(x[e]);
      lo[e] = bfloat16(x[e] - static_cast<float>(hi[e]));
    }
    const auto [row, column] = cuda::position_of(i, a.width);
    bfloat16* const first = a.to + 3 * row * a.width + column;
    cuda::put_elements(first, hi);
    cuda::put_elements(first + (a.left ? 1 : 2) * a.width, hi);
    cuda::put_elements(first + (a.left ? 2 : 1) * a.width, lo);
  }
};

// A block moves a tile through shared memory, so that neighbouring threads read and write neighbouring elements. A row
// of the tile has one element more, which spreads a column over the banks.
constexpr int kTile = 32, kTileRow = kTile + 1, kRowsAtOnce = 8;

__host__ __device__ constexpr int64_t tiles(int64_t n) {
  return (n + kTile - 1) / kTile;
}

template <class From, class To>
__global__ void transpose_tile(Transpose<From, To> a) {
  cuda::wait_for_previous();
  To* tile = cuda::shared<To>();
  const int64_t across = tiles(a.cols), row = blockIdx.x / across * kTile, col = blockIdx.x % across * kTile;
  const int x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < kTile; y += kRowsAtOnce) {
    if (row + y < a.rows && col + x < a.cols)
      tile[y * kTileRow + x] = static_cast<To>(a.from[(row + y) * a.cols + col + x]);
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kTile; y += kRowsAtOnce) {
    if (col + y < a.cols && row + x < a.rows) a.to[(col + y) * a.rows + row + x] = tile[x * kTileRow + y];
  }
}

template <class From, class To>
void transpose_matrix(Context& ctx, const Transpose<From, To>& a) {
  if (a.rows == 0 || a.cols == 0) return;
  // One dimension: the others have at most 65,535 blocks.
  const cuda::Grid grid{dim3(cuda::blocks_of(tiles(a.rows) * tiles(a.cols))), dim3(kTile, kRowsAtOnce),
                        kTile * kTileRow * sizeof(To)};
  cuda::launch(ctx, a.kName, grid, transpose_tile<From, To>, a);
}

template <class From, class To>
constexpr auto* kConvert = cuda::each_quad<ConvertElement<From, To>>;

const KernelAdder conversions(Device::Kind::cuda, kConvert<float, bfloat16>, kConvert<float, float16>,
                              kConvert<bfloat16, float>, kConvert<float16, float>, kConvert<float, double>,
                              kConvert<double, float>, cuda::each_quad<SplitElement<float>>);
const KernelAdder transpositions(Device::Kind::cuda, transpose_matrix<float, float>, transpose_matrix<float, bfloat16>,
                                 transpose_matrix<float, float16>, transpose_matrix<bfloat16, bfloat16>,
                                 transpose_matrix<float16, float16>, transpose_matrix<double, double>);

}  // namespace
}  // namespace lmx
