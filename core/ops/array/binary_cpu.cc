#include "ops/array/binary.h"

namespace lmx::ops {
namespace {

// `A`, `B`: whether the operand advances with each element, or repeats.
template <class F, class T, bool A, bool B>
LMX_SIMD void value_run(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(a[A ? i : 0], b[B ? i : 0]);
}
template <class F, class T, bool A, bool B, bool First>
LMX_SIMD void slope_run(const T* a, const T* b, const T* dy, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[A ? i : 0], y = b[B ? i : 0];
    if constexpr (First) {
      dx[i] = F::da(x, y, dy[i]);
    } else {
      dx[i] = F::db(x, y, dy[i]);
    }
  }
}

// Calls run(at, a, b, n) for runs of elements, with their positions in the result and in both operands. `run` is a
// template on whether each operand advances.
template <class Args, class Run>
void each_run(const Args& args, Run&& run) {
  const bool a_moves = args.walk.step(0) != 0, b_moves = args.walk.step(1) != 0;
  parallel_for(args.n, kGrain, [&](int64_t begin, int64_t end) {
    for_runs(args.walk, begin, end, [&](int64_t at, const std::array<int64_t, 2>& o, int64_t n) {
      const auto *a = args.a + o[0], *b = args.b + o[1];
      if (a_moves && b_moves) {
        run.template operator()<true, true>(at, a, b, n);
      } else if (a_moves) {
        run.template operator()<true, false>(at, a, b, n);
      } else if (b_moves) {
        run.template operator()<false, true>(at, a, b, n);
      } else {
        run.template operator()<false, false>(at, a, b, n);
      }
    });
  });
}

template <class F, class T>
void forward(Context&, const Binary<F, T>& args) {
  each_run(args, [&]<bool A, bool B>(int64_t at, const T* a, const T* b, int64_t n) {
    value_run<F, T, A, B>(a, b, args.y + at, n);
  });
}

template <class F, class First, class T>
void backward(Context&, const BinaryBackward<F, First, T>& args) {
  each_run(args, [&]<bool A, bool B>(int64_t at, const T* a, const T* b, int64_t n) {
    slope_run<F, T, A, B, First::value>(a, b, args.dy + at, args.dx + at, n);
  });
}

template <class F>
KernelAdder add() {
  using No = std::false_type;
  return KernelAdder(Device::Kind::cpu, forward<F, float>, forward<F, double>, backward<F, No, float>,
                     backward<F, No, double>);
}
template <class F>
KernelAdder add_first() {
  using Yes = std::true_type;
  return KernelAdder(Device::Kind::cpu, backward<F, Yes, float>, backward<F, Yes, double>);
}

const KernelAdder adders[] = {add<Add>(),    add<Subtract>(),       add<Multiply>(),
                              add<Divide>(), add_first<Multiply>(), add_first<Divide>()};

}  // namespace
}  // namespace lmx::ops
