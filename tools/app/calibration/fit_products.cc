#include "app/calibration/fit_products.h"

#include <algorithm>
#include <utility>

#include "app/records/median.h"

namespace lmx::plan {
namespace {

double operations(const MeasuredProduct& p) {
  return 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

// Seconds in which the memory delivers the operands and takes the result.
double traffic_s(const DeviceConfig& device, const MeasuredProduct& p, DType compute) {
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  return device.memory_s(static_cast<double>(size_of(compute)) * (m * k + k * n + m * n));
}

// Operations a second, without the fixed part of the time.
double rate_of(const MeasuredProduct& p, double fixed_us) {
  return operations(p) / (1e-6 * std::max(p.us - fixed_us, p.us / 2));
}

double peak_of(const std::vector<MeasuredProduct>& products, double fixed_us) {
  double peak = 0;
  for (const MeasuredProduct& p : products) peak = std::max(peak, rate_of(p, fixed_us));
  return peak;
}

}  // namespace

void fit_products(DeviceConfig& device, const std::vector<MeasuredProduct>& products, DType compute) {
  const double first_peak = peak_of(products, 0);
  std::vector<MeasuredProduct> arithmetic;
  std::vector<double> beyond;  // microseconds
  for (const MeasuredProduct& p : products) {
    const double traffic = traffic_s(device, p, compute);
    if (device.kind == "gpu" && traffic > operations(p) / first_peak)
      beyond.push_back(std::max(0.0, p.us - 1e6 * traffic));
    else
      arithmetic.push_back(p);
  }
  device.product_us = beyond.empty() ? 0 : lmx_cli::median(std::move(beyond));
  const double peak = peak_of(products, device.product_us);
  std::vector<double> halves;
  for (const MeasuredProduct& p : arithmetic)
    halves.push_back(static_cast<double>(std::min({p.m, p.n, p.k})) * (peak / rate_of(p, device.product_us) - 1));
  device.half_size = halves.empty() ? 0 : lmx_cli::median(std::move(halves));
  device.peak_tflops.of(compute) = peak / 1e12;
  device.efficiency.of(compute) = 1;
}

}  // namespace lmx::plan
