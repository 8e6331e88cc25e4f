// The quantisation error of a run's gradients, and the entries of a record that report it.
#include <cmath>

#include "comm/codec/codecs.h"
#include "lmx/error.h"

namespace lmx {
namespace comm {

void HealthCounters::encode(Context& ctx, const Codec& codec, const std::string& name, const Tensor& values,
                            Tensor encoded, Tensor lost) {
  codec.encode(ctx, values, encoded);
  Counters& counters = counters_[name];
  if (!counters.sums.defined()) counters.sums = ctx.zeros({kSums}, DType::f64, MemClass::communication);
  counters.values += values.numel();
  codec.measure(ctx, encoded, values, counters.sums, std::move(lost));
}

std::map<std::string, CodecHealth> HealthCounters::take() {
  std::map<std::string, CodecHealth> taken;
  for (const auto& [name, counters] : counters_) {
    const auto reading = context_of(counters.sums).read<double>(counters.sums);
    const auto sums = reading.get();
    taken[name] = {.values = counters.values,
                   .underflow = static_cast<int64_t>(sums[0]),
                   .overflow = static_cast<int64_t>(sums[1]),
                   .error = sums[2],
                   .norm = sums[3]};
  }
  counters_.clear();
  return taken;
}

}  // namespace comm

void CodecHealth::add(const CodecHealth& other) {
  values += other.values;
  underflow += other.underflow;
  overflow += other.overflow;
  error += other.error;
  norm += other.norm;
  residual += other.residual;
}

std::vector<std::pair<std::string, double>> health_values(const std::map<std::string, CodecHealth>& health) {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [param, h] : health) {
    const std::string name = str(kHealthPrefix, param, "/");
    values.emplace_back(name + "entries", static_cast<double>(h.values));
    values.emplace_back(name + "underflow", static_cast<double>(h.underflow));
    values.emplace_back(name + "overflow", static_cast<double>(h.overflow));
    values.emplace_back(name + "relative_error", h.relative_error());
    values.emplace_back(name + "norm", std::sqrt(h.norm));
    if (h.residual > 0) values.emplace_back(name + "residual_norm", std::sqrt(h.residual));
  }
  return values;
}

std::map<std::string, CodecHealth> health_in(const std::map<std::string, double>& values) {
  std::map<std::string, CodecHealth> health;
  const auto value = [&](const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? 0.0 : found->second;
  };
  for (auto it = values.lower_bound(std::string(kHealthPrefix)); it != values.end(); ++it) {
    const std::string& key = it->first;
    if (!key.starts_with(kHealthPrefix)) break;
    if (!key.ends_with("/entries")) continue;
    const std::string stem = key.substr(0, key.rfind('/') + 1);
    const double norm = value(stem + "norm"), error = value(stem + "relative_error") * norm,
                 residual = value(stem + "residual_norm");
    CodecHealth& h = health[stem.substr(kHealthPrefix.size(), stem.size() - kHealthPrefix.size() - 1)];
    h.values = static_cast<int64_t>(it->second);
    h.underflow = static_cast<int64_t>(value(stem + "underflow"));
    h.overflow = static_cast<int64_t>(value(stem + "overflow"));
    h.norm = norm * norm;
    h.error = error * error;
    h.residual = residual * residual;
  }
  return health;
}

}  // namespace lmx
