// Products of 16-bit matrices on tensor cores: the instructions ldmatrix and mma.m16n8k16 of the PTX ISA ("Matrix
// fragments for mma.m16n8k16 with floating point type"), for compute capability 8.0 and newer. The 32 lanes of a warp
// hold a matrix together, each lane a few of its elements, and every lane must call these functions. The emulated
// device runs the same instructions (tests/cuda_emulator/include/warp_matrix.h).
#pragma once

#include <cstdint>

#include "backend/cuda/unroll.cuh"
#include "lmx/cuda_launch.cuh"
#include "lmx/dtype.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "lmx's kernels need compute capability 8.0 or newer: name no older one in LMX_CUDA_ARCHITECTURES"
#endif

namespace lmx::cuda {

// A lane's elements of the left side (16, 16), of the right side (16, 8), and of a sum (16, 8). A register of the first
// two has two elements.
struct Left {
  uint32_t registers[4];
};
struct Right {
  uint32_t registers[2];
};
using Sum = float[4];

// The row of element r of a lane's Sum, and its column.
__device__ inline int sum_row(int r) {
  return static_cast<int>(threadIdx.x) % 32 / 4 + (r < 2 ? 0 : 8);
}
__device__ inline int sum_column(int r) {
  return static_cast<int>(threadIdx.x) % 4 * 2 + r % 2;
}

// Two values rounded to nearest even, the first in the lower half.
template <class Half>
__device__ uint32_t pack(float low, float high) {
#if defined(__CUDACC__)
  if constexpr (dtype_of<Half> == DType::bf16) {
    const __nv_bfloat162_raw pair = __floats2bfloat162_rn(low, high);
    return pair.x | static_cast<uint32_t>(pair.y) << 16;
  } else {
    const __half2_raw pair = __floats2half2_rn(low, high);
    return pair.x | static_cast<uint32_t>(pair.y) << 16;
  }
#else
  return Half(low).bits | static_cast<uint32_t>(Half(high).bits) << 16;
#endif
}

// Sums with the same columns are the left side of the next product without an exchange: (16, 8) and (16, 8), the
// columns 0 to 7 and 8 to 15.
template <class Half>
__device__ Left left_of(const Sum& first, const Sum& second) {
  return {{pack<Half>(first[0], first[1]), pack<Half>(first[2], first[3]), pack<Half>(second[0], second[1]),
           pack<Half>(second[2], second[3])}};
}

// sum += a b, the products of elements added in f32.
template <class Half>
__device__ void multiply_add(const Left& a, const Right& b, Sum& sum) {
#if defined(__CUDACC__)
  if constexpr (dtype_of<Half> == DType::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.registers[0]), "r"(a.registers[1]), "r"(a.registers[2]), "r"(a.registers[3]), "r"(b.registers[0]),
          "r"(b.registers[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.registers[0]), "r"(a.registers[1]), "r"(a.registers[2]), "r"(a.registers[3]), "r"(b.registers[0]),
          "r"(b.registers[1]));
  }
#else
  cuda_emulator::mma_m16n8k16<Half>(sum, a.registers, b.registers);
#endif
}

// Loads four matrices (8, 8), or their transposes, from shared memory. Lane 8 m + r has the position, in bytes behind
// `memory`, of row r of matrix m, which is 16-byte aligned.
template <bool Transposed>
__device__ void load_matrices(const void* memory, int position, uint32_t (&to)[4]) {
#if defined(__CUDACC__)
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) + position;
  // `volatile` and "memory" keep the load between the barriers around it.
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
#else
  cuda_emulator::ldmatrix_x4<Transposed>(to, static_cast<const unsigned char*>(memory) + position);
#endif
}

// A matrix in shared memory whose rows are `Stride` elements apart. Stride is 8 more than a multiple of 32, so the
// eight rows of 16 bytes that load_matrices() reads at a time are in different banks.
template <class Half, int Stride>
struct SharedMatrix {
  static_assert(Stride % 32 == 8);
  Half* data;

  __device__ Half* at(int row, int column) const { return data + row * Stride + column; }
  // Rows [row, row + 16) and columns [column, column + 16).
  __device__ Left left(int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Left loaded;
    load<false>(lane % 16, lane / 16 * 8, row, column, loaded.registers);
    return loaded;
  }
  // The transpose of rows [row, row + 16), columns [column, column + 16).
  __device__ Left left_of_transpose(int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Left loaded;
    load<true>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8, row, column, loaded.registers);
    return loaded;
  }
  // Writes rows [row, row + 16), columns [column, column + 16).
  __device__ void store(int row, int column, const Left& from) const {
    LMX_UNROLL
    for (int r = 0; r < 4; ++r) {
      Half* to = at(row + sum_row(r % 2 * 2), column + sum_column(0) + r / 2 * 8);
      *reinterpret_cast<uint32_t*>(to) = from.registers[r];
    }
  }
  // The transposes of rows [row, row + 8) and [row + 8, row + 16), columns [column, column + 16).
  __device__ void transposed(int row, int column, Right (&to)[2]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint32_t loaded[4];
    load<false>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8, row, column, loaded);
    to[0] = {{loaded[0], loaded[1]}};
    to[1] = {{loaded[2], loaded[3]}};
  }
  // Rows [row, row + 16), columns [column, column + 8) and [column + 8, column + 16).
  __device__ void right(int row, int column, Right (&to)[2]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint32_t loaded[4];
    load<true>(lane % 16, lane / 16 * 8, row, column, loaded);
    to[0] = {{loaded[0], loaded[1]}};
    to[1] = {{loaded[2], loaded[3]}};
  }

 private:
  // The lane's row and column are added first: the rest is a constant, if the loops around are unrolled.
  template <bool Transposed>
  __device__ void load(int lane_row, int lane_column, int row, int column, uint32_t (&to)[4]) const {
    constexpr int kBytes = sizeof(Half);
    const int position = kBytes * (lane_row * Stride + lane_column) + kBytes * (row * Stride + column);
    load_matrices<Transposed>(data, position, to);
  }
};

}  // namespace lmx::cuda
