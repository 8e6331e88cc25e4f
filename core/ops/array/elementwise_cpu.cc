#include "ops/array/elementwise.h"

#include <type_traits>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class F, class T>
LMX_SIMD void forward(const F& f, const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = f.value(x[i]);
}

template <class F, class T>
LMX_SIMD void backward(const F& f, const T* x, const T* y, const T* dy, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = f.slope(x[i], y[i]) * dy[i];
}

// Elements per thread in backward, at least: the slopes of these functions are a few operations on y.
template <class F>
constexpr int64_t kBackwardGrain =
    std::is_same_v<F, Tanh> || std::is_same_v<F, Sigmoid> || std::is_same_v<F, Relu> ? kGrain : kGrain / 4;

template <class F, class T>
void apply(Context&, const Elementwise<F, T>& a) {
  parallel_for(a.n, kGrain / 4,
               [&](int64_t begin, int64_t end) { forward<F, T>(a, a.x + begin, a.y + begin, end - begin); });
}

template <class F, class T>
void apply_backward(Context&, const ElementwiseBackward<F, T>& a) {
  parallel_for(a.n, kBackwardGrain<F>, [&](int64_t begin, int64_t end) {
    backward<F, T>(a, a.x + begin, a.y + begin, a.dy + begin, a.dx + begin, end - begin);
  });
}

template <class F>
KernelAdder add() {
  return KernelAdder(Device::Kind::cpu, apply<F, float>, apply<F, double>, apply_backward<F, float>,
                     apply_backward<F, double>);
}

const KernelAdder adders[] = {add<Tanh>(), add<Sigmoid>(), add<Relu>(), add<Exp>(),  add<Log>(),     add<Sqrt>(),
                              add<Pow>(),  add<Square>(),  add<Silu>(), add<Gelu>(), add<GeluTanh>()};

}  // namespace
}  // namespace lmx::ops
