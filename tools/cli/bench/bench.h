// The benchmarks of `lmx bench`, and what they share.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/cuda.h"
#include "base/clock.h"
#include "cli/command_line.h"
#include "lmx/config.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"

namespace lmx::app::cli {

// `lmx bench --counts`: what a step asks of a CUDA device.

nlohmann::ordered_json counts_json(const DeviceCounts& counts);
// Launches by name, most of them first, then copies and waits.
std::string counts_table(const DeviceCounts& counts);

// Functions that the benchmarks share.

using BenchClock = std::chrono::steady_clock;

// Rounds `value` to a multiple of 1 / parts, for a JSON line.
inline double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

// The fixed training steps that `lmx bench` times.

// A training step: parameters, random batches, loss, clipping, update.
class Workload {
 public:
  // The parts of a recipe, as YAML.
  struct Parts {
    std::string model, loss, optimizer;
    int64_t vocab;
    double rate;
    std::vector<ClipRule> clip;
  };
  Workload(Context& ctx, const Parts& parts);
  virtual ~Workload() = default;

  // Forward, backward and update on batch `number`. Returns the sum of the losses, in nats. A device may still be
  // computing all of it: as in training, the host need not wait before it enqueues the next step.
  Reading<float> step(int64_t number);
  virtual int64_t tokens() const = 0;  // targets of a step
  int64_t parameters() const { return params_.count(); }
  // The parts of the recipe that are timed, so that a measurement states them.
  const Node& model_config() const { return model_config_; }
  const Node& loss_config() const { return loss_config_; }
  const Node& optimizer_config() const { return optimizer_config_; }

 protected:
  virtual Batch batch(RandomKey key) const = 0;
  Context& ctx_;
  Node model_config_, loss_config_, optimizer_config_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;

 private:
  void update(int64_t step);
  ParameterStore params_;
  std::unique_ptr<Optimizer> optimizer_;
  double rate_;
  std::vector<ClipRule> clip_;
};

// How matrices are multiplied: `precision` and `products` of a recipe.
struct Arithmetic {
  DType compute;
  F32Products products;
};

struct WorkloadScale {
  bool paper = false;  // the sizes of the papers, for GPUs, instead of sizes for CPUs
  bool quick = false;  // with few cells and tokens, but as many layers and time steps
};

std::vector<std::string> workload_names();
// REQUIRES: `name` is one of workload_names().
std::unique_ptr<Workload> make_workload(const std::string& name, Context& ctx, WorkloadScale scale);
// Such a step, made on a device of this kind that only counts.
struct CountedWorkload {
  double flops = 0;  // floating-point operations of its matrix products
  DeviceCounts counts;
  MemoryStats memory;
};
CountedWorkload count_workload(const std::string& name, Device::Kind kind, const Arithmetic& arithmetic,
                               WorkloadScale scale);

}  // namespace lmx::app::cli
