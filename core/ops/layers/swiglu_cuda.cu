#include "ops/layers/swiglu.h"

#include "lmx/quads.cuh"

namespace lmx::ops {
namespace {

// Elements of y that begin with number i. A quad of y is within a row, because aligned() requires that `cols` is a
// multiple of four.
template <class T>
struct ForwardElement {
  Swiglu<T> a;
  bool aligned() const {
    return a.cols % cuda::kQuad == 0 && cuda::aligned_quads(a.x, a.y) && cuda::aligned_quads(a.operand);
  }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    const T* gates = a.x + i + cuda::position_of(i, a.cols).row * a.cols;
    T gate[N], value[N], y[N];
    cuda::elements_at(gates, gate);
    cuda::elements_at(gates + a.cols, value);
    for (int e = 0; e < N; ++e) y[e] = swiglu_value(gate[e], value[e]);
    cuda::put_elements(a.y + i, y);
    if (a.operand.to) cuda::put_elements(a.operand, i, y);
  }
};

template <class T>
struct BackwardElement {
  SwigluBackward<T> a;
  bool aligned() const {
    return a.cols % cuda::kQuad == 0 && cuda::aligned_quads(a.x, a.dy, a.dx) && cuda::aligned_quads(a.operand);
  }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    const int64_t gates = i + cuda::position_of(i, a.cols).row * a.cols, values = gates + a.cols;
    T gate[N], value[N], dy[N];
    cuda::elements_at(a.x + gates, gate);
    cuda::elements_at(a.x + values, value);
    cuda::elements_at(a.dy + i, dy);
    for (int e = 0; e < N; ++e) {
      const SwigluSlopes<T> d = swiglu_slopes(gate[e], value[e], dy[e]);
      gate[e] = d.gate;
      value[e] = d.value;
    }
    put(gates, gate);
    put(values, value);
  }
  template <int N>
  __device__ void put(int64_t at, const T (&dx)[N]) const {
    cuda::put_elements(a.dx + at, dx);
    if (a.operand.to) cuda::put_elements(a.operand, at, dx);
  }
};

template <class T>
void forward(Context& ctx, const Swiglu<T>& a) {
  cuda::launch_quads(ctx, a.kName, a.rows * a.cols, ForwardElement<T>{a});
}
template <class T>
void backward(Context& ctx, const SwigluBackward<T>& a) {
  cuda::launch_quads(ctx, a.kName, a.rows * a.cols, BackwardElement<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
