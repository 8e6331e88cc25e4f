// The common part of the CUDA kernels of codecs: the elementwise codes of one value, and the quantisation error.
#pragma once

#include "backend/cuda/parts.cuh"
#include "comm/codec/codecs.h"

namespace lmx::comm {

__device__ inline void put_value(PlainCode, std::byte* encoded, int64_t i, float value) {
  reinterpret_cast<float*>(encoded)[i] = value;
}
__device__ inline void put_value(Bf16Code, std::byte* encoded, int64_t i, float value) {
  reinterpret_cast<bfloat16*>(encoded)[i] = bfloat16(value);
}
__device__ inline void put_value(const Fp16Code& code, std::byte* encoded, int64_t i, float value) {
  reinterpret_cast<float16*>(encoded)[i] = float16(value * code.scale);
}

__device__ inline float value_at(PlainCode, const std::byte* encoded, int64_t i) {
  return reinterpret_cast<const float*>(encoded)[i];
}
__device__ inline float value_at(Bf16Code, const std::byte* encoded, int64_t i) {
  return static_cast<float>(reinterpret_cast<const bfloat16*>(encoded)[i]);
}
__device__ inline float value_at(const Fp16Code& code, const std::byte* encoded, int64_t i) {
  return static_cast<float>(reinterpret_cast<const float16*>(encoded)[i]) * code.inverse;
}

// sum + value i
template <class Code>
__device__ float plus_value(const Code& code, float sum, const std::byte* encoded, int64_t i) {
  return sum + value_at(code, encoded, i);
}
// In f16, the stored sum is scaled up to the f16 value that it had (fp16_cpu.cc). Otherwise the product is not rounded
// before it is added, on the CPU as here, whatever the compiler would choose.
__device__ inline float plus_value(const Fp16Code& code, float sum, const std::byte* encoded, int64_t i) {
  const auto value = static_cast<float>(reinterpret_cast<const float16*>(encoded)[i]);
  if (!code.reduce_in_fp16) return fmaf(value, code.inverse, sum);
  const auto before = static_cast<float>(float16(sum * code.scale));
  return static_cast<float>(float16(before + value)) * code.inverse;
}

// A block for each strip of `strip` values, which `decode` decodes. Sum k of the strips: parts[k * gridDim.x ...].
template <class Decode>
__global__ void measure_strip(Measured<float> a, int64_t strip, Decode decode, double* parts) {
  cuda::wait_for_previous();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * strip, n = a.rows * a.width;
  const int64_t end = begin + strip < n ? begin + strip : n;
  int underflow = 0, overflow = 0;
  float error = 0, norm = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const float before = a.values[i], after = decode(i);
    const bool kept = fabsf(after) < INFINITY, finite = kept && fabsf(before) < INFINITY;
    const float lost = finite ? before - after : 0.0f, value = finite ? before : 0.0f;
    underflow += before != 0 && after == 0;
    overflow += !kept;
    error += lost * lost;
    norm += value * value;
    if (a.lost) a.lost[i] = lost;
  }
  const double sums[kSums] = {static_cast<double>(underflow), static_cast<double>(overflow), static_cast<double>(error),
                              static_cast<double>(norm)};
  for (int k = 0; k < kSums; ++k) {
    const double sum = cuda::block_sum(sums[k], cuda::shared<double>());
    if (threadIdx.x == 0) parts[static_cast<int64_t>(k) * gridDim.x + blockIdx.x] = sum;
  }
}

// decode(i) is value i of the block (rows, width).
template <class Decode>
void measure_strips(Context& ctx, const char* codec, const Measured<float>& a, const Decode& decode) {
  if (a.rows * a.width == 0) return;
  const int64_t rows = strip_rows(a.width), strips = (a.rows + rows - 1) / rows;
  Tensor parts = ctx.empty(Shape{kSums, strips}, DType::f64, MemClass::communication);
  cuda::launch(ctx, codec, cuda::summing_grid(strips, a.rows * a.width), measure_strip<Decode>, a, rows * a.width,
               decode, parts.data<double>());
  cuda::launch(ctx, codec, cuda::summing_grid(kSums, strips), cuda::add_parts<double>, parts.data<double>(), strips,
               a.sums);
}

}  // namespace lmx::comm
