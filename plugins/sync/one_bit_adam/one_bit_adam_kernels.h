// The arithmetic of one element of 1-bit Adam. p becomes the direction, which the recipe's optimizer multiplies by its
// rate; g is the sum over ranks.
#pragma once

#include <cmath>

#include "lmx/slot_optimizer.h"

namespace one_bit_adam {

// The corrections of Adam's moments: 1 / (1 - b1^t), 1 / sqrt(1 - b2^t).
template <class T>
struct Correction {
  T first, root, eps;
  LMX_HD T direction(T m, T v) const { return first * m / (std::sqrt(v) * root + eps); }
};

// g: the gradient
template <class T>
struct WarmUp {
  static constexpr const char* kName = "one_bit_adam_warm_up";
  lmx::optim::Elements<T> of;
  T b1, b2;
  Correction<T> corrected;
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, T& m, T& v, const WarmUp& c) {
    const T d = c.grad * g;
    m = c.b1 * m + (T(1) - c.b1) * d;
    v = c.b2 * v + (T(1) - c.b2) * d * d;
    p = c.corrected.direction(m, v);
  }
};

// g: the momentum. An element that had no gradient before v was frozen is never updated: one bit cannot represent its
// momentum, 0, and its variance would divide by eps.
template <class T>
struct Frozen {
  static constexpr const char* kName = "one_bit_adam_frozen";
  lmx::optim::Elements<T> of;
  Correction<T> corrected;
  LMX_HD void scale(double) {}
  LMX_HD static void apply(T& p, T g, T& m, T& v, const Frozen& c) {
    m = v > 0 ? g : T(0);
    p = v > 0 ? c.corrected.direction(g, v) : T(0);
  }
};

}  // namespace one_bit_adam
