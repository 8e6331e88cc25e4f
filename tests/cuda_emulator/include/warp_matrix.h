// The instructions by which a warp multiplies 16-bit matrices, as the PTX ISA describes them: ldmatrix and
// mma.m16n8k16. A kernel reaches them through core/backend/cuda/mma.cuh. Part of cuda_runtime.h.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace cuda_emulator {

// A row and a column of a matrix that a warp holds in registers.
struct Position {
  unsigned int row, column;
};

// The position of a lane's element in A (16, 16), B (16, 8), and C or D (16, 8) of mma.m16n8k16. Elements 2 r and
// 2 r + 1 of A and B are the lower and the upper half of register r.
constexpr Position position_in_a(unsigned int lane, unsigned int element) {
  const unsigned int group = lane / 4, in_group = lane % 4;
  return {group + (element / 2 % 2 ? 8 : 0), 2 * in_group + element % 2 + (element >= 4 ? 8 : 0)};
}
constexpr Position position_in_b(unsigned int lane, unsigned int element) {
  const unsigned int group = lane / 4, in_group = lane % 4;
  return {2 * in_group + element % 2 + (element >= 2 ? 8 : 0), group};
}
constexpr Position position_in_c(unsigned int lane, unsigned int element) {
  const unsigned int group = lane / 4, in_group = lane % 4;
  return {group + (element >= 2 ? 8 : 0), 2 * in_group + element % 2};
}

namespace warp_matrix {

// The registers of one lane.
struct MultiplyLane {
  float* d;
  const uint32_t *a, *b;
};
struct LoadLane {
  const void* row;
  uint32_t* to;
};

template <class Half>
float element_of(const uint32_t* registers, unsigned int element) {
  const auto bits = static_cast<uint16_t>(registers[element / 2] >> (element % 2 * 16));
  return static_cast<float>(std::bit_cast<Half>(bits));
}

template <class Half>
void multiply(const std::array<uint64_t, kWarp>& lanes) {
  float a[16][16], b[16][8];
  for (unsigned int lane = 0; lane < kWarp; ++lane) {
    const auto& own = *reinterpret_cast<const MultiplyLane*>(lanes[lane]);
    for (unsigned int e = 0; e < 8; ++e) {
      const Position at = position_in_a(lane, e);
      a[at.row][at.column] = element_of<Half>(own.a, e);
    }
    for (unsigned int e = 0; e < 4; ++e) {
      const Position at = position_in_b(lane, e);
      b[at.row][at.column] = element_of<Half>(own.b, e);
    }
  }
  for (unsigned int lane = 0; lane < kWarp; ++lane) {
    const auto& own = *reinterpret_cast<const MultiplyLane*>(lanes[lane]);
    for (unsigned int e = 0; e < 4; ++e) {
      const Position at = position_in_c(lane, e);
      for (unsigned int k = 0; k < 16; ++k) own.d[e] += a[at.row][k] * b[k][at.column];
    }
  }
}

template <bool Transposed>
void load(const std::array<uint64_t, kWarp>& lanes) {
  const auto at = [&](unsigned int lane) -> const LoadLane& { return *reinterpret_cast<const LoadLane*>(lanes[lane]); };
  for (unsigned int matrix = 0; matrix < 4; ++matrix) {
    uint16_t values[8][8];
    for (unsigned int row = 0; row < 8; ++row) {
      const uint4 whole = *static_cast<const uint4*>(at(8 * matrix + row).row);  // its alignment is checked
      std::memcpy(values[row], &whole, sizeof whole);
    }
    for (unsigned int lane = 0; lane < kWarp; ++lane) {
      const unsigned int r = lane / 4, c = 2 * (lane % 4);
      const uint32_t low = Transposed ? values[c][r] : values[r][c];
      const uint32_t high = Transposed ? values[c + 1][r] : values[r][c + 1];
      at(lane).to[matrix] = low | high << 16;
    }
  }
}

}  // namespace warp_matrix

// mma.sync.aligned.m16n8k16.row.col.f32: d += a b. Half: a 16-bit type that converts to float.
template <class Half>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  warp_matrix::MultiplyLane own{d, a, b};
  warp_operation(0xffffffffu, reinterpret_cast<uint64_t>(&own), warp_matrix::multiply<Half>);
}

// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: lane 8 m + r names row r of matrix m, 16 bytes. Register m of lane
// 4 r + c gets elements 2 c and 2 c + 1 of row r of matrix m, or of its transpose.
template <bool Transposed>
void ldmatrix_x4(uint32_t (&to)[4], const void* row) {
  warp_matrix::LoadLane own{row, to};
  warp_operation(0xffffffffu, reinterpret_cast<uint64_t>(&own), warp_matrix::load<Transposed>);
}

}  // namespace cuda_emulator
