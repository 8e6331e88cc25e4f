// The reference attention that takes the place of cuDNN's on the emulated device: one thread for each query or key, in
// double, from the definition. It shares no code with lmx's kernels, and like cuDNN it reads and writes only the rows
// of the sequences, which it finds by the offsets.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backend/cudnn/library.h"
#include "lmx/cuda_launch.cuh"

namespace lmx::cudnn {

// Like cuDNN, which has no deterministic gradient of ragged sequences on some devices.
std::string sdpa_refusal(const Context&, const SdpaShape&) {
  const char* error = std::getenv("LMX_EMULATED_ERROR");
  return error && std::strcmp(error, "sdpa") == 0 ? "the emulated cuDNN supports no attention" : "";
}

namespace {

constexpr int64_t kMostSize = 128;

// Row i of a head of a sequence.
template <class T>
__device__ T* row_of(T* operand, const int64_t* offsets, int64_t sequence, int64_t i, int64_t stride, int64_t column) {
  return operand + offsets[sequence] + i * stride + column;
}

// The place of a thread: the row number `row` of a head of a sequence, out of shape.batch * heads * rows threads.
struct Place {
  int64_t sequence, head, row;
  __device__ Place(int64_t at, int64_t heads, int64_t rows)
      : sequence(at / rows / heads), head(at / rows % heads), row(at % rows) {}
};

template <class T>
__device__ double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += static_cast<double>(static_cast<float>(a[c])) * static_cast<float>(b[c]);
  return sum;
}

// A sum of weighted rows of a head.
struct RowSum {
  double values[kMostSize] = {};
  template <class T>
  __device__ void add(double weight, const T* row, int64_t size) {
    for (int64_t c = 0; c < size; ++c) values[c] += weight * static_cast<float>(row[c]);
  }
  template <class T>
  __device__ void store(T* to, int64_t size, double divisor = 1) const {
    for (int64_t c = 0; c < size; ++c) to[c] = T(static_cast<float>(values[c] / divisor));
  }
};

// One head of one sequence.
template <class T>
struct Head {
  const SdpaInput<T>& in;
  int64_t sequence, head;
  __device__ int64_t queries() const { return in.query_counts[sequence]; }
  __device__ int64_t keys() const { return in.key_counts[sequence]; }
  __device__ int64_t key_head() const { return head * in.shape.kv_heads / in.shape.heads; }
  __device__ const T* q(int64_t i) const {
    return row_of(in.q, in.q_offsets, sequence, i, in.shape.q_stride, head * in.shape.size);
  }
  __device__ const T* k(int64_t j) const {
    return row_of(in.k, in.k_offsets, sequence, j, in.shape.k_stride, key_head() * in.shape.size);
  }
  __device__ const T* v(int64_t j) const {
    return row_of(in.v, in.v_offsets, sequence, j, in.shape.v_stride, key_head() * in.shape.size);
  }
  template <class U>
  __device__ U* output(U* y, int64_t i) const {
    return row_of(y, in.y_offsets, sequence, i, in.shape.heads * in.shape.size, head * in.shape.size);
  }
  __device__ int64_t lse_at(int64_t i) const { return in.lse_offsets[sequence] + i * in.shape.heads + head; }
  __device__ double scale() const { return 1 / std::sqrt(static_cast<double>(in.shape.size)); }
  __device__ bool sees(int64_t i, int64_t j) const { return !in.shape.causal || j <= i; }
  __device__ double score(int64_t i, int64_t j) const { return scale() * dot(q(i), k(j), in.shape.size); }
  // use(j) for each key that query i sees.
  template <class Use>
  __device__ void over_keys(int64_t i, Use use) const {
    for (int64_t j = 0; j < keys(); ++j)
      if (sees(i, j)) use(j);
  }
};

// Calls use(head, i) for the query of thread number `at`, if it exists.
template <class T, class Use>
__device__ void with_query(const SdpaInput<T>& in, int64_t at, Use use) {
  const Place place(at, in.shape.heads, in.shape.queries);
  const Head<T> head{in, place.sequence, place.head};
  if (place.row < head.queries()) use(head, place.row);
}

template <class T>
struct ForwardQuery {
  SdpaForward<T> a;
  __device__ void operator()(int64_t at) const {
    with_query(a.in, at, [&](const Head<T>& head, int64_t i) {
      const int64_t size = a.in.shape.size;
      double most = -INFINITY, sum = 0;
      head.over_keys(i, [&](int64_t j) { most = std::fmax(most, head.score(i, j)); });
      RowSum y;
      head.over_keys(i, [&](int64_t j) {
        const double weight = std::exp(head.score(i, j) - most);
        sum += weight;
        y.add(weight, head.v(j), size);
      });
      y.store(head.output(a.y, i), size, sum);
      a.lse[head.lse_at(i)] = static_cast<float>(most + std::log(sum));
    });
  }
};

// The weight of one query and one key, and the gradient of their score, for both gradients.
template <class T>
struct Slope {
  double weight, ds;
  __device__ Slope(const SdpaBackward<T>& a, const Head<T>& head, int64_t i, int64_t j) {
    const int64_t size = a.in.shape.size;
    weight = std::exp(head.score(i, j) - a.lse[head.lse_at(i)]);
    const T* dy = head.output(a.dy, i);
    ds = weight * (dot(dy, head.v(j), size) - dot(dy, head.output(a.y, i), size)) * head.scale();
  }
};

template <class T>
struct BackwardQuery {
  SdpaBackward<T> a;
  __device__ void operator()(int64_t at) const {
    with_query(a.in, at, [&](const Head<T>& head, int64_t i) {
      const SdpaShape& shape = a.in.shape;
      RowSum dq;
      head.over_keys(i, [&](int64_t j) { dq.add(Slope<T>(a, head, i, j).ds, head.k(j), shape.size); });
      dq.store(row_of(a.dq, a.in.q_offsets, head.sequence, i, shape.q_stride, head.head * shape.size), shape.size);
    });
  }
};

template <class T>
struct BackwardKey {
  SdpaBackward<T> a;
  __device__ void operator()(int64_t at) const {
    const SdpaShape& shape = a.in.shape;
    const Place place(at, shape.kv_heads, shape.keys);
    const int64_t j = place.row, group = shape.heads / shape.kv_heads;
    if (j >= a.in.key_counts[place.sequence]) return;
    RowSum dk, dv;
    for (int64_t h = place.head * group; h < (place.head + 1) * group; ++h) {
      const Head<T> head{a.in, place.sequence, h};
      for (int64_t i = 0; i < head.queries(); ++i) {
        if (!head.sees(i, j)) continue;
        const Slope<T> slope(a, head, i, j);
        dk.add(slope.ds, head.q(i), shape.size);
        dv.add(slope.weight, head.output(a.dy, i), shape.size);
      }
    }
    const int64_t column = place.head * shape.size;
    dk.store(row_of(a.dk, a.in.k_offsets, place.sequence, j, shape.k_stride, column), shape.size);
    dv.store(row_of(a.dv, a.in.v_offsets, place.sequence, j, shape.v_stride, column), shape.size);
  }
};

template <class T>
void forward(Context& ctx, const SdpaForward<T>& a) {
  const SdpaShape& s = a.in.shape;
  launch_each(ctx, a.kName, s.batch * s.heads * s.queries, ForwardQuery<T>{a});
}

template <class T>
void backward(Context& ctx, const SdpaBackward<T>& a) {
  const SdpaShape& s = a.in.shape;
  launch_each(ctx, a.kName, s.batch * s.heads * s.queries, BackwardQuery<T>{a});
  launch_each(ctx, a.kName, s.batch * s.kv_heads * s.keys, BackwardKey<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, forward<bfloat16>, forward<float16>, backward<bfloat16>, backward<float16>);

}  // namespace
}  // namespace lmx::cudnn
