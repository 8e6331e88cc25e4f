#include "ops/array/indexing.h"

namespace lmx::ops {
namespace {

template <class T>
void take(Context&, const Take<T>& a) {
  parallel_for(a.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.y[i] = a.places[i] < 0 ? T(0) : a.x[a.places[i]];
  });
}

template <class T>
void put(Context&, const Put<T>& a) {
  for (int64_t i = 0; i < a.n; ++i) {
    if (a.places[i] >= 0) a.x[a.places[i]] = a.values ? a.values[i] : T(0);
  }
}

template <class T>
void add_at(Context&, const AddAt<T>& a) {
  for (int64_t i = 0; i < a.n; ++i) a.x[a.places[i]] += a.values[i];
}

template <class T>
void select(Context&, const Select<T>& s) {
  const int64_t sc = s.walk.step(0), sa = s.walk.step(1), sb = s.walk.step(2);
  parallel_for(s.n, kGrain, [&](int64_t begin, int64_t end) {
    for_runs(s.walk, begin, end, [&](int64_t at, const std::array<int64_t, 3>& o, int64_t n) {
      const uint8_t* c = s.condition + o[0];
      const T *a = s.a + o[1], *b = s.b + o[2];
      for (int64_t i = 0; i < n; ++i) s.y[at + i] = c[i * sc] != 0 ? a[i * sa] : b[i * sb];
    });
  });
}

const KernelAdder adder(Device::Kind::cpu, take<float>, take<double>, put<float>, put<double>, add_at<float>,
                        add_at<double>, select<float>, select<double>);

}  // namespace
}  // namespace lmx::ops
