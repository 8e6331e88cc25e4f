#include <cstring>

#include "comm/codec/codecs_cuda.cuh"

namespace lmx::comm {
namespace {

constexpr int64_t kBits = 8;
constexpr int kColumns = cuda::kWarpLanes, kParts = 8;  // the threads of a block that adds the sums of strips

// Sums of the non-negative and the negative entries of each column, for each strip of rows: (strips, width).
struct StripSums {
  float *above, *below;
  int32_t* count;  // of the non-negative entries
};

// Column i % width of strip i / width.
struct SumStripElement {
  Encode<OneBitCode, float> a;
  StripSums strips;
  __device__ void operator()(int64_t i) const {
    const auto [strip, column] = cuda::position_of(i, a.width);
    const int64_t begin = strip * OneBitCode::kStrip;
    const int64_t end = begin + OneBitCode::kStrip < a.rows ? begin + OneBitCode::kStrip : a.rows;
    float above = 0, below = 0;
    int32_t count = 0;
    for (int64_t r = begin; r < end; ++r) {
      const float v = a.values[r * a.width + column];
      above += v >= 0 ? v : 0.0f;
      below += v >= 0 ? 0.0f : v;
      count += v >= 0 ? 1 : 0;
    }
    strips.above[i] = above;
    strips.below[i] = below;
    strips.count[i] = count;
  }
};

// A block may begin at any byte.
__device__ bool aligned(const std::byte* encoded) {
  return reinterpret_cast<uintptr_t>(encoded) % alignof(float) == 0;
}
__device__ void put_mean(std::byte* encoded, int64_t i, float mean) {
  memcpy(encoded + i * static_cast<int64_t>(sizeof mean), &mean, sizeof mean);
}
__device__ float mean_at(const std::byte* encoded, int64_t i) {
  if (aligned(encoded)) return reinterpret_cast<const float*>(encoded)[i];
  float mean;
  memcpy(&mean, encoded + i * static_cast<int64_t>(sizeof mean), sizeof mean);
  return mean;
}

// A block adds the strips of kColumns columns: each of its kParts warps a part of them, and then one warp the parts.
__global__ void column_means(Encode<OneBitCode, float> a, StripSums strips, int64_t count) {
  cuda::wait_for_previous();
  double* sums = cuda::shared<double>();  // (kParts, 3, kColumns)
  const int lane = static_cast<int>(threadIdx.x), part = static_cast<int>(threadIdx.y);
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + lane;
  double above = 0, below = 0, positive = 0;
  if (column < a.width) {
    for (int64_t s = part; s < count; s += kParts) {
      above += static_cast<double>(strips.above[s * a.width + column]);
      below += static_cast<double>(strips.below[s * a.width + column]);
      positive += strips.count[s * a.width + column];
    }
  }
  double* own = sums + part * 3 * kColumns + lane;
  own[0] = above;
  own[kColumns] = below;
  own[2 * kColumns] = positive;
  __syncthreads();
  if (part != 0 || column >= a.width) return;
  for (int p = 1; p < kParts; ++p) {
    const double* other = own + p * 3 * kColumns;
    above += other[0];
    below += other[kColumns];
    positive += other[2 * kColumns];
  }
  const auto n = static_cast<int64_t>(positive);
  put_mean(a.encoded, column, OneBitCode::mean(above, n));
  put_mean(a.encoded, a.width + column, OneBitCode::mean(below, a.rows - n));
}

// A warp packs the signs of 32 values into four bytes, of which the block may have fewer.
__global__ void pack_signs(const float* values, int64_t n, uint8_t* bits) {
  cuda::wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const unsigned signs = __ballot_sync(0xffffffffu, i < n && values[i] >= 0);
  const int64_t lane = threadIdx.x % cuda::kWarpLanes, byte = (i - lane) / kBits + lane;
  if (lane < cuda::kWarpLanes / kBits && byte * kBits < n) bits[byte] = static_cast<uint8_t>(signs >> (lane * kBits));
}

// Value i of a block.
struct BitDecoder {
  const std::byte* encoded;
  int64_t width;
  __device__ float operator()(int64_t i) const { return at(i, cuda::position_of(i, width).column); }
  __device__ float at(int64_t i, int64_t column) const {
    const auto* bits = reinterpret_cast<const uint8_t*>(encoded + 2 * width * static_cast<int64_t>(sizeof(float)));
    return mean_at(encoded, (bits[i / kBits] >> (i % kBits)) & 1 ? column : width + column);
  }
};
struct DecodeElement {
  Decode<OneBitCode, float> a;
  int64_t count() const { return a.rows * a.width; }
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.width);
    a.to.row(row)[column] = BitDecoder{a.encoded, a.width}.at(i, column);
  }
};
struct AddElement {
  AddDecoded<OneBitCode, float> a;
  int64_t count() const { return a.rows * a.width; }
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.width);
    a.sum.row(row)[column] += BitDecoder{a.encoded, a.width}.at(i, column);
  }
};

void encode(Context& ctx, const Encode<OneBitCode, float>& a) {
  const int64_t n = a.rows * a.width, count = (a.rows + OneBitCode::kStrip - 1) / OneBitCode::kStrip;
  if (n == 0) return;
  Tensor above = ctx.empty(Shape{count, a.width}, DType::f32, MemClass::communication);
  Tensor below = ctx.empty(Shape{count, a.width}, DType::f32, MemClass::communication);
  Tensor positive = ctx.empty(Shape{count, a.width}, DType::i32, MemClass::communication);
  const StripSums strips{above.data<float>(), below.data<float>(), positive.data<int32_t>()};
  launch_each(ctx, a.kName, count * a.width, SumStripElement{a, strips});
  const auto blocks = [](int64_t values, int64_t each) { return dim3(cuda::blocks_of((values + each - 1) / each)); };
  cuda::launch(ctx, a.kName,
               {blocks(a.width, kColumns), dim3(kColumns, kParts), 3 * kParts * kColumns * sizeof(double)},
               column_means, a, strips, count);
  auto* bits = reinterpret_cast<uint8_t*>(a.encoded + 2 * a.width * static_cast<int64_t>(sizeof(float)));
  cuda::launch(ctx, a.kName, {blocks(n, cuda::kThreads)}, pack_signs, a.values, n, bits);
}

void measure(Context& ctx, const Measure<OneBitCode, float>& a) {
  measure_strips(ctx, a.kName, a.of, BitDecoder{a.encoded, a.of.width});
}

const KernelAdder adder(Device::Kind::cuda, encode, cuda::each<DecodeElement>, cuda::each<AddElement>, measure);

}  // namespace
}  // namespace lmx::comm
