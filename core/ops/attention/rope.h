// Arguments of the kernels of rotary position embeddings, see rope.cc. half: pairs of a head's elements.
#pragma once

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::ops {

// Cosine and sine of the angle positions[r] * frequencies[i].
template <class T>
struct RopeAngles {
  static constexpr const char* kName = "rope_angles";
  const int64_t* positions;   // (rows)
  const double* frequencies;  // (half)
  T *cosines, *sines;         // (rows, half)
  int64_t rows, half;
};

// S: T, or on a GPU also the type of products.
template <class T, class S = T>
struct Rope {
  static constexpr const char* kName = "rope";
  const S* x;                // (rows, heads 2 half)
  S* y;                      // of x's shape; with a type S of 16 bits also x itself
  const T *cosines, *sines;  // (rows, half)
  T turn;                    // 1, or -1 for the inverse rotation
  int64_t rows, heads, half;
  int64_t rotated;             // heads; those after them are copied
  bool interleaved;            // pairs are elements (2 i, 2 i + 1) of a head, else (i, i + half)
  OperandTarget operand = {};  // of y
  const T* bias = nullptr;     // (heads 2 half) added to each row of x; null: none. Only for S of 16 bits
};

LMX_HD inline double rope_angle(int64_t position, double frequency) {
  return static_cast<double>(position) * frequency;
}

template <class T>
struct Rotated {
  T first, second;
};
template <class T>
LMX_HD inline Rotated<T> rotate_pair(T first, T second, T cosine, T sine) {
  return {first * cosine - second * sine, first * sine + second * cosine};
}

}  // namespace lmx::ops
