// Kernels whose threads read and write four neighbouring elements at once. A thread that moves 4 bytes keeps too few
// bytes on their way to fill the bandwidth of a GPU's memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lmx/cuda_launch.cuh"
#include "lmx/operand.h"

namespace lmx::cuda {

constexpr int kQuad = 4;

// N neighbouring elements, aligned so that one instruction moves up to 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Neighbours {
  T v[N];
};
template <class T>
using Quad = Neighbours<T, kQuad>;

template <class T>
__device__ Quad<T> quad_at(const T* p) {
  return *reinterpret_cast<const Quad<T>*>(p);
}
// N elements: a quad, a pair or one.
template <int N, class T>
__device__ void elements_at(const T* p, T (&to)[N]) {
  const auto found = *reinterpret_cast<const Neighbours<T, N>*>(p);
  for (int e = 0; e < N; ++e) to[e] = found.v[e];
}
template <class T>
__device__ void put_quad(T* p, const Quad<T>& q) {
  *reinterpret_cast<Quad<T>*>(p) = q;
}
template <int N, class T>
__device__ void put_elements(T* p, const T (&from)[N]) {
  Neighbours<T, N> all;
  for (int e = 0; e < N; ++e) all.v[e] = from[e];
  *reinterpret_cast<Neighbours<T, N>*>(p) = all;
}
template <int N, class T>
__device__ void put_elements(const OperandTarget& operand, int64_t i, const T (&from)[N]) {
  const auto put = [&](auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    To rounded[N];
    for (int e = 0; e < N; ++e) {
      if constexpr (std::is_same_v<To, double>)
        rounded[e] = static_cast<double>(from[e]);
      else
        rounded[e] = To(static_cast<float>(from[e]));
    }
    put_elements(to + i, rounded);
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

template <class T>
__device__ void put_quad(const OperandTarget& operand, int64_t i, const Quad<T>& q) {
  put_elements(operand, i, q.v);
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
