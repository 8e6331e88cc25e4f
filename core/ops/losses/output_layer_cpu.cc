#include "ops/losses/output_layer.h"

namespace lmx::ops {
namespace {

double weighted_sum(const double* values, const float* weights, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += weight_of(weights, i) * values[i];
  return sum;
}

template <class T>
void sum(Context&, const SumOfLosses<T>& a) {
  *a.nats = weighted_sum(a.nll, a.weights, a.n);
  *a.loss = static_cast<T>(a.smoothed ? weighted_sum(a.smoothed, a.weights, a.n) : *a.nats);
}

template <class T>
void scale(Context& ctx, const ScaleBySeed<T>& a) {
  const double factor = a.factor();
  if (factor != 1.0) run_kernel(ctx, Scale<T>{a.x, a.n, static_cast<T>(factor)});
}

const KernelAdder adder(Device::Kind::cpu, sum<float>, sum<double>, scale<float>, scale<double>);

}  // namespace
}  // namespace lmx::ops
