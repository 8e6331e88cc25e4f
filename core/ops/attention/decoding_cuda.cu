#include "ops/attention/decoding.h"

#include <cmath>

#include "lmx/cuda_launch.cuh"
#include "lmx/math.h"

namespace lmx::ops {
namespace {

constexpr int kAttendThreads = 64;  // a block, and the keys of a tile: one for each thread

template <class T>
struct StoredKeys {  // of a head of AttendKeys
  const T* const* keys;
  int64_t head, width;  // elements before the head, and of all heads
  __device__ T key(int64_t j, int64_t i) const { return keys[j][head + i]; }
  __device__ T value(int64_t j, int64_t i) const { return keys[j][width + head + i]; }
};

template <class T>
struct PanelKeys {  // of a row and head of keys of AttendText
  const T *keys, *values;
  int64_t size;
  __device__ T key(int64_t j, int64_t i) const { return keys[(j / kPanel * size + i) * kPanel + j % kPanel]; }
  __device__ T value(int64_t j, int64_t i) const { return values[j * size + i]; }
};

// Attention of one query (size) to n keys, by a block. Weights are relative to the largest score so far, so y is
// scaled again when a tile has a larger one. Each thread sums the few weights of a tile itself, all in one order.
template <class T, class Keys>
__device__ void attend(const T* q, const Keys& keys, int64_t n, int64_t size, T* y) {
  T* const weights = cuda::shared<T>();
  const T scale = T(1) / std::sqrt(static_cast<T>(size));
  T top = static_cast<T>(-INFINITY), total = 0;
  for (int64_t first = 0; first < n; first += kAttendThreads) {
    const int64_t j = first + threadIdx.x, count = n - first < kAttendThreads ? n - first : kAttendThreads;
    T score = 0;
    for (int64_t i = 0; i < size && j < n; ++i) score += q[i] * keys.key(j, i);
    __syncthreads();  // the weights of the tile before may still be read
    weights[threadIdx.x] = score * scale;
    __syncthreads();
    T most = top;
    for (int64_t k = 0; k < count; ++k) most = weights[k] > most || weights[k] != weights[k] ? weights[k] : most;
    __syncthreads();
    weights[threadIdx.x] = fast_exp(score * scale - most);
    __syncthreads();
    const T shrink = fast_exp(top - most);
    total *= shrink;
    for (int64_t k = 0; k < count; ++k) total += weights[k];
    for (int64_t i = threadIdx.x; i < size; i += kAttendThreads) {
      T sum = first == 0 ? T(0) : y[i] * shrink;
      for (int64_t k = 0; k < count; ++k) sum += weights[k] * keys.value(first + k, i);
      y[i] = sum;
    }
    top = most;
  }
  for (int64_t i = threadIdx.x; i < size; i += kAttendThreads) y[i] = n > 0 ? y[i] / total : T(0);
}

// Stores the key and the value (size) of position `t`, by a block: `keys` and `values` are those of a row and head.
template <class T>
__device__ void keep(const T* key, const T* value, int64_t size, int64_t t, T* keys, T* values) {
  T* const own = keys + t / kPanel * size * kPanel + t % kPanel;
  for (int64_t i = threadIdx.x; i < size; i += kAttendThreads) {
    own[i * kPanel] = key[i];
    values[t * size + i] = value[i];
  }
}

// Block r heads + h: head h of row r.
template <class T>
__global__ void attend_keys_kernel(AttendKeys<T> a) {
  cuda::wait_for_previous();
  const int64_t row = blockIdx.x / a.heads, head = blockIdx.x % a.heads * a.size, width = a.heads * a.size;
  const int64_t first = a.begin[row];
  attend(a.q + row * a.stride + head, StoredKeys<T>{a.keys + first, head, width}, a.begin[row + 1] - first, a.size,
         a.y + row * width + head);
}

// Block r kv_heads + h: head h of the keys and values of row r, and the heads of queries that use it.
template <class T>
__global__ void attend_text_kernel(AttendText<T> a) {
  cuda::wait_for_previous();
  const int64_t size = a.size, row = blockIdx.x / a.kv_heads, kv_head = blockIdx.x % a.kv_heads;
  const int64_t group = a.heads / a.kv_heads, stored = blockIdx.x * size * a.capacity;
  const T* const q = a.qkv + row * (a.heads + 2 * a.kv_heads) * size;
  const T* const key = q + (a.heads + kv_head) * size;
  T *const keys = a.keys + stored, *const values = a.values + stored;
  keep(key, key + a.kv_heads * size, size, a.length, keys, values);
  __syncthreads();
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
    attend(q + h * size, PanelKeys<T>{keys, values, size}, a.length + 1, size, a.y + (row * a.heads + h) * size);
}

// Block p length + t: position t of pair p of a row and a head of keys and values.
template <class T>
__global__ void keep_text_kernel(KeepText<T> a) {
  cuda::wait_for_previous();
  const int64_t size = a.size, pair = blockIdx.x / a.length, t = blockIdx.x % a.length;
  const int64_t row = pair / a.kv_heads * a.length + t, stored = pair * a.capacity * size;
  const T* const key = a.qkv + (row * (a.heads + 2 * a.kv_heads) + a.heads + pair % a.kv_heads) * size;
  keep(key, key + a.kv_heads * size, size, t, a.keys + stored, a.values + stored);
}

template <class T, class Args>
void launch_attend(Context& ctx, void (*kernel)(Args), const Args& a, int64_t heads) {
  if (a.rows == 0) return;
  const cuda::Grid grid{cuda::blocks_of(a.rows * heads), kAttendThreads, kAttendThreads * sizeof(T)};
  cuda::launch(ctx, Args::kName, grid, kernel, a);
}

template <class T>
void attend_keys(Context& ctx, const AttendKeys<T>& a) {
  launch_attend<T>(ctx, attend_keys_kernel<T>, a, a.heads);
}
template <class T>
void attend_text(Context& ctx, const AttendText<T>& a) {
  launch_attend<T>(ctx, attend_text_kernel<T>, a, a.kv_heads);
}

template <class T>
void keep_text(Context& ctx, const KeepText<T>& a) {
  launch_attend<T>(ctx, keep_text_kernel<T>, a, a.kv_heads * a.length);
}

const KernelAdder adder(Device::Kind::cuda, attend_keys<float>, attend_keys<double>, attend_text<float>,
                        attend_text<double>, keep_text<float>, keep_text<double>);

}  // namespace
}  // namespace lmx::ops
