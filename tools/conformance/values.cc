#include "conformance/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lmx/random.h"

namespace lmx_cli::check {

using namespace lmx;

double at(const Tensor& t, int64_t i) {
  return t.dtype() == DType::f64 ? t.data<double>()[i] : static_cast<double>(t.data<float>()[i]);
}

double difference(const Tensor& a, const Tensor& b) {
  if (a.numel() != b.numel()) return INFINITY;
  double largest = 1e-6, apart = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(at(a, i)));
    const double d = std::abs(at(a, i) - at(b, i));
    apart = std::isfinite(d) ? std::max(apart, d) : INFINITY;
  }
  return apart / largest;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

Tensor normal_values(Shape shape, DType type, uint64_t seed, double deviation) {
  Tensor t = Tensor::empty(Allocator::cpu(), shape, type);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double v = deviation * RandomKey(seed).normal(static_cast<uint64_t>(i));
    if (type == DType::f64)
      t.data<double>()[i] = v;
    else
      t.data<float>()[i] = static_cast<float>(v);
  }
  return t;
}

}  // namespace lmx_cli::check
