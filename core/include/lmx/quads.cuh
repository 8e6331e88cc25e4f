// Kernels whose threads read and write four neighbouring elements at once. A thread that moves 4 bytes keeps too few
// bytes on their way to fill the bandwidth of a GPU's memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lmx/cuda_launch.cuh"
#include "lmx/operand.h"

namespace lmx::cuda {

constexpr int kQuad = 4;

// Four neighbouring elements, aligned so that one instruction moves 16 bytes.
template <class T>
struct alignas(kQuad * sizeof(T) < 16 ? kQuad * sizeof(T) : 16) Quad {
  T v[kQuad];
};

template <class T>
__device__ Quad<T> quad_at(const T* p) {
  return *reinterpret_cast<const Quad<T>*>(p);
}
// N elements: a quad or one.
template <int N, class T>
__device__ void elements_at(const T* p, T (&to)[N]) {
  static_assert(N == 1 || N == kQuad);
  if constexpr (N == 1) {
    to[0] = *p;
  } else {
    const Quad<T> q = quad_at(p);
    for (int e = 0; e < N; ++e) to[e] = q.v[e];
  }
}
template <class T>
__device__ void put_quad(T* p, const Quad<T>& q) {
  *reinterpret_cast<Quad<T>*>(p) = q;
}
template <int N, class T>
__device__ void put_elements(T* p, const T (&from)[N]) {
  static_assert(N == 1 || N == kQuad);
  if constexpr (N == 1) {
    *p = from[0];
  } else {
    Quad<T> q;
    for (int e = 0; e < N; ++e) q.v[e] = from[e];
    put_quad(p, q);
  }
}
template <class T>
__device__ void put_quad(const OperandTarget& operand, int64_t i, const Quad<T>& q) {
  const auto put = [&](auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    Quad<To> rounded;
    for (int e = 0; e < kQuad; ++e) {
      if constexpr (std::is_same_v<To, double>)
        rounded.v[e] = static_cast<double>(q.v[e]);
      else
        rounded.v[e] = To(static_cast<float>(q.v[e]));
    }
    put_quad(to + i, rounded);
  };
  switch (operand.type) {
    case DType::f64:
      return put(static_cast<double*>(operand.to));
    case DType::bf16:
      return put(static_cast<bfloat16*>(operand.to));
    case DType::f16:
      return put(static_cast<float16*>(operand.to));
    default:
      return put(static_cast<float*>(operand.to));
  }
}

template <int N, class T>
__device__ void put_elements(const OperandTarget& operand, int64_t i, const T (&from)[N]) {
  static_assert(N == 1 || N == kQuad);
  if constexpr (N == 1) {
    operand.store(i, from[0]);
  } else {
    Quad<T> q;
    for (int e = 0; e < N; ++e) q.v[e] = from[e];
    put_quad(operand, i, q);
  }
}

// Whether quads of elements of type T can begin at these addresses. Null is such an address.
template <class... T>
LMX_HD bool aligned_quads(const T*... p) {
  return ((reinterpret_cast<uintptr_t>(p) % alignof(Quad<T>) == 0) && ...);
}
LMX_HD inline bool aligned_quads(const OperandTarget& operand) {
  return reinterpret_cast<uintptr_t>(operand.to) % 16 == 0;
}

template <class Element>
__global__ void quads_kernel(int64_t quads, Element element) {
  wait_for_previous();
  const int64_t q = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (q < quads) element.quad(q * kQuad);
}

template <class Element>
struct Rest {
  Element element;
  int64_t begin;
  __device__ void operator()(int64_t i) const { element(begin + i); }
};

// As launch_each(). Element has two more members: `bool aligned() const`, a function of the host, says whether quads
// can begin at multiples of kQuad in all of its arrays; `__device__ void quad(int64_t i) const` does the work of
// elements i to i + 3, and reads all its inputs before it writes. The last n % 4 elements are done one by one.
template <class Element>
void launch_quads(const Context& ctx, const char* op, int64_t n, const Element& element) {
  if (!element.aligned()) return launch_each(ctx, op, n, element);
  const int64_t quads = n / kQuad;
  if (quads > 0) launch(ctx, op, {blocks_of((quads + kThreads - 1) / kThreads)}, quads_kernel<Element>, quads, element);
  if (n % kQuad != 0) launch_each(ctx, op, n % kQuad, Rest<Element>{element, quads * kQuad});
}

// As each(), for such elements.
template <class Element>
void each_quad(Context& ctx, const decltype(Element::a)& a) {
  launch_quads(ctx, a.kName, a.n, Element{a});
}

}  // namespace lmx::cuda
