// Element types. bf16 and f16 are storage types: arithmetic is done in float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lmx/api.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#elif !defined(__FLT16_MAX__)
#include <immintrin.h>
#endif

namespace lmx {

enum class DType : uint8_t { f64, f32, bf16, f16, i32, i64, u8 };

LMX_API size_t size_of(DType type);               // bytes per element
LMX_API std::string_view name_of(DType type);     // "f32"; safetensors' spelling is its upper case
LMX_API DType dtype_from_name(std::string_view);  // UserError for an unknown name

// The bits of a float, also in CUDA kernels.
LMX_HD inline uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
LMX_HD inline float float_of_bits(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  return std::bit_cast<float>(u);
#endif
}

// The upper half of a float, rounded to nearest even; NaN stays NaN.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  LMX_HD explicit bfloat16(float value) {
    const uint32_t u = float_bits(value);
    const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? ((u >> 16) | 0x40u) : rounded);
  }
  LMX_HD explicit operator float() const { return float_of_bits(static_cast<uint32_t>(bits) << 16); }
};

// IEEE binary16, rounded to nearest even. Clang before 15 has no _Float16 on x86; there the instructions of F16C, which
// every CPU that lmx supports has, give the same bits.
struct float16 {
  uint16_t bits = 0;
  float16() = default;
#if defined(__CUDACC__)
  LMX_HD explicit float16(float value) : bits(static_cast<__half_raw>(__float2half_rn(value)).x) {}
  LMX_HD explicit operator float() const { return __half2float(__half_raw{bits}); }
#elif defined(__FLT16_MAX__)
  explicit float16(float value) : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
#else
  explicit float16(float value) : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  explicit operator float() const { return _cvtsh_ss(bits); }
#endif
};

template <class T>
struct dtype_of_type;
template <>
struct dtype_of_type<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of_type<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_type<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of_type<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of_type<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_type<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_type<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_type<T>::value;

}  // namespace lmx
