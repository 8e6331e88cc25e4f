// Layer normalisation (Ba et al. 2016) over the last dimension of size D:
//
//   xhat = (x - mean) r,  r = 1 / sqrt(var + eps)        y = xhat gain + bias
//   g = dy gain           dx = r (g - mean(g) - xhat mean(g xhat))
//   dgain = sum over rows of dy xhat                     dbias = sum over rows of dy
#include <cmath>

#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

void check(const Tensor& x, const Tensor& gain, const Tensor& bias, double eps) {
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[layer_norm] x ", x.shape(), ", gain ", gain.shape(), ", bias ", bias.shape(), ": ", why));
  };
  if (x.rank() < 1 || x.dim(-1) == 0) fail("x needs a last dimension of at least 1");
  const Shape d{x.dim(-1)};
  if (gain.shape() != d || bias.shape() != d) fail(str("gain and bias must be ", d));
  if (!(eps >= 0)) throw UserError(str("[layer_norm] eps ", eps, ": must not be negative"));
  check_same_type("layer_norm", "x", x, "gain", gain);
  check_same_type("layer_norm", "x", x, "bias", bias);
}

template <class T>
struct Stats {
  T mean, r;
};

template <class T>
LMX_SIMD Stats<T> forward_row(const T* x, const T* gain, const T* bias, T* y, T eps, int64_t d) {
  T sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < d; ++i) sum += x[i];
  const T mean = sum / static_cast<T>(d);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < d; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const T r = T(1) / std::sqrt(squares / static_cast<T>(d) + eps);
  for (int64_t i = 0; i < d; ++i) y[i] = (x[i] - mean) * r * gain[i] + bias[i];
  return {mean, r};
}

template <class T>
LMX_SIMD void backward_row(const T* x, const T* gain, const T* dy, T* dx, Stats<T> s, int64_t d) {
  T sum = 0, projected = 0;
#pragma omp simd reduction(+ : sum, projected)
  for (int64_t i = 0; i < d; ++i) {
    const T g = dy[i] * gain[i];
    sum += g;
    projected += g * (x[i] - s.mean);
  }
  const T mean_g = sum / static_cast<T>(d), mean_gx = projected * s.r / static_cast<T>(d);
  for (int64_t i = 0; i < d; ++i) dx[i] = s.r * (dy[i] * gain[i] - mean_g - (x[i] - s.mean) * s.r * mean_gx);
}

// Adds the contribution of one row to columns [0, n) of dgain and dbias.
template <class T>
LMX_SIMD void add_row(const T* x, const T* dy, T* dgain, T* dbias, Stats<T> s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dgain[i] += dy[i] * ((x[i] - s.mean) * s.r);
    dbias[i] += dy[i];
  }
}

template <class T>
struct Saved {
  Var x, gain, bias, out;
  std::vector<Stats<T>> stats;  // (rows)
};

template <class T>
void backward(Context& ctx, const Saved<T>& s) {
  const Tensor dy = Tape::grad_of(s.out);
  const Matrix m = fold(s.x.shape());
  const T *px = s.x.value().template data<T>(), *pdy = dy.data<T>();
  if (s.x.requires_grad()) {
    Tensor dx = dy.like(MemClass::activations);
    const T* gain = s.gain.value().template data<T>();
    T* pdx = dx.data<T>();
    parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r * m.cols;
        backward_row<T>(px + at, gain, pdy + at, pdx + at, s.stats[static_cast<size_t>(r)], m.cols);
      }
    });
    Tape::accumulate(ctx, s.x, dx);
  }
  if (!s.gain.requires_grad() && !s.bias.requires_grad()) return;
  Tensor dgain = ctx.zeros({m.cols}, dtype_of<T>, MemClass::gradients), dbias = dgain.clone();
  T *pg = dgain.data<T>(), *pb = dbias.data<T>();
  parallel_for(m.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(m.rows, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < m.rows; ++r) {
      const int64_t at = r * m.cols + begin;
      add_row<T>(px + at, pdy + at, pg + begin, pb + begin, s.stats[static_cast<size_t>(r)], end - begin);
    }
  });
  Tape::accumulate(ctx, s.gain, dgain);
  Tape::accumulate(ctx, s.bias, dbias);
}

template <class T>
Var typed(Context& ctx, const Var& x, const Var& gain, const Var& bias, T eps) {
  const Matrix m = fold(x.shape());
  Tensor y = x.value().like(MemClass::activations);
  Saved<T> saved{x, gain, bias, Var(y), std::vector<Stats<T>>(static_cast<size_t>(m.rows))};
  const T *px = x.value().data<T>(), *pg = gain.value().data<T>(), *pb = bias.value().data<T>();
  T* py = y.data<T>();
  parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * m.cols;
      saved.stats[static_cast<size_t>(r)] = forward_row<T>(px + at, pg, pb, py + at, eps, m.cols);
    }
  });
  Var out = saved.out;
  if (recording(ctx, {&x, &gain, &bias})) {
    ctx.tape->record("layer_norm", {x, gain, bias}, {out},
                     [&ctx, saved = std::move(saved)](Tape&) { backward<T>(ctx, saved); });
  }
  return out;
}

}  // namespace

Var layer_norm(Context& ctx, const Var& x, const Var& gain, const Var& bias, double eps) {
  check(x.value(), gain.value(), bias.value(), eps);
  return with_values("layer_norm", x.value(), [&](auto zero) {
    return typed<decltype(zero)>(ctx, x, gain, bias, static_cast<decltype(zero)>(eps));
  });
}

}  // namespace lmx
