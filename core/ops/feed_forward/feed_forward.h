// The activations of a feed-forward layer and the arguments of its kernels, see feed_forward.cc. Units y (rows, cols)
// and their pre-activations z are stored in the type S of matrix products.
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"
#include "ops/array/elementwise.h"
#include "ops/layers/dropout_mask.h"

namespace lmx::ops {

// A unit has kParts pre-activations, `cols` columns apart. Backward computes their gradients dz from the values that
// the layer keeps: the units if kKeepsUnits is set, otherwise z.
struct ReluUnits {
  static constexpr int kParts = 1;
  static constexpr bool kKeepsUnits = true;
  template <class T>
  LMX_HD static T value(const T (&z)[1]) {
    return Relu().value(z[0]);
  }
  template <class T>
  LMX_HD static void differentiate(const T (&y)[1], T dy, T (&dz)[1]) {
    dz[0] = Relu().slope(y[0], y[0]) * dy;
  }
};

struct GeluTanhUnits {
  static constexpr int kParts = 1;
  static constexpr bool kKeepsUnits = false;
  template <class T>
  LMX_HD static T value(const T (&z)[1]) {
    return GeluTanh().value(z[0]);
  }
  template <class T>
  LMX_HD static void differentiate(const T (&z)[1], T dy, T (&dz)[1]) {
    dz[0] = GeluTanh().slope(z[0], z[0]) * dy;  // the slope does not depend on y
  }
};

// Gates, then values. s: the sigmoid of a gate.
struct SwigluUnits {
  static constexpr int kParts = 2;
  static constexpr bool kKeepsUnits = false;
  template <class T>
  LMX_HD static T value(const T (&z)[2]) {
    return z[0] * fast_sigmoid(z[0]) * z[1];
  }
  template <class T>
  LMX_HD static void differentiate(const T (&z)[2], T dy, T (&dz)[2]) {
    const T gate = z[0], value = z[1], s = fast_sigmoid(gate);
    dz[0] = dy * value * s * (T(1) + gate * (T(1) - s));
    dz[1] = dy * gate * s;
  }
};

// y = activation(z + bias) * mask. If A has one part, y may be z.
template <class A, class S>
struct FeedForwardUnits {
  static constexpr const char* kName = "feed_forward_units";
  const S* z;         // (rows, kParts cols)
  const float* bias;  // (kParts cols); null: z contains it
  S* y;
  DropMask mask;
  const uint64_t* row_ids;  // (rows); not read if the mask drops nothing
  int64_t rows, cols;
};

// dz, the gradient of z + bias for dy * scale. sums (kParts cols) = beta * sums + the column sums of dz, before it is
// rounded to S; rows are added in a fixed order, on the CPU in ascending order.
template <class A, class S>
struct FeedForwardUnitsBackward {
  static constexpr const char* kName = "feed_forward_units_backward";
  const S* kept;      // y or (rows, kParts cols) z
  const float* bias;  // is added to `kept`, unless it is null
  const S* dy;
  S* dz;              // (rows, kParts cols); may be `kept`, and with one part dy
  Computed<S>* sums;  // null: none are computed
  int64_t rows, cols;
  Computed<S> scale, beta;  // beta: 0 or 1
};

}  // namespace lmx::ops
