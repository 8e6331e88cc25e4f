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

template <class T>
struct LionUpdate {
  static constexpr const char* kName = "lion";
  Elements<T> of;
  T lr, keep, b1, b2;
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, T& m, const LionUpdate& c) {
    const T d = c.grad * g, direction = c.b1 * m + (T(1) - c.b1) * d;
    p = c.keep * p - c.lr * (T(direction > 0) - T(direction < 0));
    m = c.b2 * m + (T(1) - c.b2) * d;
  }
};

// Parts of the updates of optimizers that need a parameter as a whole (parameter_optimizer.h). `squares`: sums of
// squares in the memory of the device.

// p <- scale g
template <class T>
struct ScaledCopy {
  static constexpr const char* kName = "scaled_copy";
  Elements<T> of;
  T by = 1;
  LMX_HD void scale(double factor) { by = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, const ScaledCopy& c) { p = c.by * g; }
};

// p <- g / (sqrt(squares[0]) + eps)
template <class T>
struct NormalisedCopy {
  static constexpr const char* kName = "normalised_copy";
  Elements<T> of;
  const double* squares;
  double eps;
  T by = 1;
  LMX_HD void scale(double) { by = static_cast<T>(1 / (std::sqrt(squares[0]) + eps)); }
  LMX_HD static void apply(T& p, T g, const NormalisedCopy& c) { p = c.by * g; }
};

// p <- a p + b g, without the scale of the gradient
template <class T>
struct Combination {
  static constexpr const char* kName = "combination";
  Elements<T> of;
  T a, b;
  LMX_HD void scale(double) {}
  LMX_HD static void apply(T& p, T g, const Combination& c) { p = c.a * p + c.b * g; }
};

// m <- momentum m + g      p <- g + momentum m (nesterov), or m
template <class T>
struct MuonMomentum {
  static constexpr const char* kName = "muon_momentum";
  Elements<T> of;
  T momentum, nesterov;  // nesterov: 1 or 0
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& p, T g, T& m, const MuonMomentum& c) {
    const T d = c.grad * g;
    m = c.momentum * m + d;
    p = c.nesterov * (d + c.momentum * m) + (T(1) - c.nesterov) * m;
  }
};

// The moments of Adam, and r <- direction + decay r for r = p.
template <class T>
struct LambDirection {
  static constexpr const char* kName = "lamb_direction";
  Elements<T> of;
  T b1, b2, first, root, eps, decay;  // first = 1 / (1 - b1^t), root = 1 / sqrt(1 - b2^t)
  T grad = 1;
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }
  LMX_HD static void apply(T& r, T g, T& m, T& v, const LambDirection& c) {
    const T d = c.grad * g;
    m = c.b1 * m + (T(1) - c.b1) * d;
    v = c.b2 * v + (T(1) - c.b2) * d * d;
    r = c.first * m / (std::sqrt(v) * c.root + c.eps) + c.decay * r;
  }
};

// p <- p - lr norm(p) / norm(r) r      squares: of p and r; null, or a norm of 0: the ratio is 1
template <class T>
struct LambStep {
  static constexpr const char* kName = "lamb_step";
  Elements<T> of;
  const double* squares;
  double lr;
  T step = 0;
  LMX_HD void scale(double) {
    const bool ratio = squares && squares[0] > 0 && squares[1] > 0;
    step = static_cast<T>(ratio ? lr * std::sqrt(squares[0] / squares[1]) : lr);
  }
  LMX_HD static void apply(T& p, T r, const LambStep& c) { p -= c.step * r; }
};

// m <- momentum m + lr trust (g + decay p)      p <- p - m
// trust = eta norm(p) / (norm(g) + decay norm(p))      squares: of p and g; null, or a norm of 0: trust is 1
template <class T>
struct LarsUpdate {
  static constexpr const char* kName = "lars";
  Elements<T> of;
  const double* squares;
  double lr, eta;
  T momentum, decay;
  T step = 0, grad = 1;
  LMX_HD void scale(double factor) {
    grad = static_cast<T>(factor);
    step = static_cast<T>(lr);
    if (!squares || !(squares[0] > 0) || !(squares[1] > 0)) return;
    const double value = std::sqrt(squares[0]), gradient = std::sqrt(squares[1]) * factor;
    step = static_cast<T>(lr * eta * value / (gradient + static_cast<double>(decay) * value));
  }
  LMX_HD static void apply(T& p, T g, T& m, const LarsUpdate& c) {
    m = c.momentum * m + c.step * (c.grad * g + c.decay * p);
    p -= m;
  }
};

// p <- keep p + (1 - keep) (g + eps), without the scale of the gradient
template <class T>
struct AdafactorMean {
  static constexpr const char* kName = "adafactor_mean";
  Elements<T> of;
  T keep, eps;
  LMX_HD void scale(double) {}
  LMX_HD static void apply(T& p, T g, const AdafactorMean& c) { p = c.keep * p + (T(1) - c.keep) * (g + c.eps); }
};

// rate = lr max(least, rms(p))      p <- (1 - rate decay) p - rate / max(1, rms(g) / clip) g      squares: of p and g
template <class T>
struct AdafactorStep {
  static constexpr const char* kName = "adafactor_step";
  Elements<T> of;
  const double* squares;
  double lr, least, clip, decay;  // least < 0: the rate is lr
  T keep = 1, step = 0;
  LMX_HD void scale(double) {
    const auto n = static_cast<double>(of.count);
    const double value = std::sqrt(squares[0] / n), excess = std::sqrt(squares[1] / n) / clip;
    const double rate = least < 0 ? lr : lr * (value > least ? value : least);
    keep = static_cast<T>(1 - rate * decay);
    step = static_cast<T>(excess > 1 ? rate / excess : rate);
  }
  LMX_HD static void apply(T& p, T g, const AdafactorStep& c) { p = c.keep * p - c.step * g; }
};

// For one element: most <- max(most, lr)      p <- p + most^2
template <class T>
struct ScheduleFreeWeight {
  static constexpr const char* kName = "schedule_free_weight";
  Elements<T> of;
  T lr;
  LMX_HD void scale(double) {}
  LMX_HD static void apply(T& p, T, T& most, const ScheduleFreeWeight& c) {
    most = most > c.lr ? most : c.lr;
    p += most * most;
  }
};

// weights: the sum and the largest rate that ScheduleFreeWeight has computed; c = largest^2 / sum
template <class T>
struct ScheduleFreeUpdate {
  static constexpr const char* kName = "schedule_free";
  Elements<T> of;
  const double* weights;
  double lr, b1;
  T b2, root, eps, decay;  // root = 1 / sqrt(1 - b2^t)
  T average = 0, ahead = 0, grad = 1;
  LMX_HD void scale(double factor) {
    const double c = weights[0] > 0 ? weights[1] * weights[1] / weights[0] : 0;
    average = static_cast<T>(c);
    ahead = static_cast<T>(lr * (b1 * (1 - c) - 1));
    grad = static_cast<T>(factor);
  }
  LMX_HD static void apply(T& y, T g, T& z, T& v, const ScheduleFreeUpdate& c) {
    const T d = c.grad * g;
    v = c.b2 * v + (T(1) - c.b2) * d * d;
    const T direction = d / (std::sqrt(v) * c.root + c.eps) + c.decay * y;
    y += c.average * (z - y) + c.ahead * direction;
    z -= static_cast<T>(c.lr) * direction;
  }
};

}  // namespace lmx::optim
