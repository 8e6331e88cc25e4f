// The arithmetic of one element of 1-bit Adam.
#pragma once

#include <cmath>

#include "lmx/slot_optimizer.h"

namespace one_bit_adam {

// p becomes the direction, which the recipe's optimizer multiplies by its rate; g is a sum over ranks: of gradients, or
// of momenta if v is frozen. An element that has had no gradient before is then never updated: one bit cannot represent
// its momentum, 0, and its variance would divide by eps. Values that are not finite stay so.
template <class T>
struct Update {
  static constexpr const char* kName = "one_bit_adam";
  lmx::optim::Elements<T> of = {};
  bool frozen = false;
  T b1, b2, eps;
  T first = 1, root = 1;  // the corrections of the moments: 1 / (1 - b1^t), 1 / sqrt(1 - b2^t)
  LMX_HD void scale(double) {}
  LMX_HD static void apply(T& p, T g, T& m, T& v, const Update& c) {
    if (!c.frozen) v = c.b2 * v + (T(1) - c.b2) * g * g;
    m = !c.frozen ? c.b1 * m + (T(1) - c.b1) * g : v == 0 ? T(0) : g;
    p = m == 0 ? T(0) : c.first * m / (std::sqrt(v) * c.root + c.eps);
  }
};

}  // namespace one_bit_adam
