// The kernels of lmx's optimizers: their arguments, and the arithmetic of one element, written once for every device
// (lmx/slot_optimizer.h).
#pragma once

#include <cmath>

#include "lmx/math.h"
#include "lmx/slot_optimizer.h"

namespace lmx::optim {

// p <- keep p - step g
template <class T>
struct SgdUpdate {
  static constexpr const char* kName = "sgd";
  Elements<T> of;
  double lr;
  T keep;
  T step = 0;  // lr, times the scale of the gradient
  LMX_HD void scale(double factor) { step = static_cast<T>(lr * factor); }
  LMX_HD static void apply(T& p, T g, const SgdUpdate& c) { p = c.keep * p - c.step * g; }
};

template <class T>
struct MomentumUpdate {
  static constexpr const char* kName = "sgd_momentum";
  Elements<T> of;
  T lr, decay, momentum, nesterov;  // nesterov: 1 or 0
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, T& m, const MomentumUpdate& c) {
    const T d = c.grad * g + c.decay * p;
    m = c.momentum * m + d;
    // Without nesterov the step is m, to which momentum was already applied.
    p -= c.lr * (c.nesterov * (d + c.momentum * m) + (T(1) - c.nesterov) * m);
  }
};

template <class T>
struct AdagradUpdate {
  static constexpr const char* kName = "adagrad";
  Elements<T> of;
  T lr, decay, eps;
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, T& s, const AdagradUpdate& c) {
    const T d = c.grad * g + c.decay * p;
    s += d * d;
    p -= c.lr * d / (std::sqrt(s) + c.eps);
  }
};

template <class T>
struct AdamUpdate {
  static constexpr const char* kName = "adam";
  Elements<T> of;
  T decay, keep;              // g' = grad g + decay p, after p *= keep
  T b1, b2, step, root, eps;  // step = lr / (1 - b1^t), root = 1 / sqrt(1 - b2^t)
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, T& m, T& v, const AdamUpdate& c) {
    const T d = c.grad * g + c.decay * p;
    m = c.b1 * m + (T(1) - c.b1) * d;
    v = c.b2 * v + (T(1) - c.b2) * d * d;
    p = c.keep * p - c.step * m / (std::sqrt(v) * c.root + c.eps);
  }
};

}  // namespace lmx::optim
