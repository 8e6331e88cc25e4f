// The fixed training steps that `lmx bench` times.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"

namespace lmx_cli {

// A training step: parameters, random batches, loss, clipping, update.
class Workload {
 public:
  // The parts of a recipe, as YAML.
  struct Parts {
    std::string model, loss, optimizer;
    int64_t vocab;
    double rate;
    std::vector<lmx::ClipRule> clip;
  };
  Workload(lmx::Context& ctx, const Parts& parts);
  virtual ~Workload() = default;

  // Forward, backward and update on batch `number`. Returns the sum of the losses, in nats. A device may still be
  // computing all of it: as in training, the host need not wait before it enqueues the next step.
  lmx::Reading<float> step(int64_t number);
  virtual int64_t tokens() const = 0;  // targets of a step
  // Returns the analytic count of matrix products alone: forward multiply-adds times 2, and backward twice the forward.
  virtual double flops() const = 0;
  int64_t parameters() const { return params_.count(); }
  // The parts of the recipe that are timed, so that a measurement states them.
  const lmx::Node& model_config() const { return model_config_; }
  const lmx::Node& loss_config() const { return loss_config_; }
  const lmx::Node& optimizer_config() const { return optimizer_config_; }

 protected:
  virtual lmx::Batch batch(lmx::RandomKey key) const = 0;
  lmx::Context& ctx_;
  lmx::Node model_config_, loss_config_, optimizer_config_;
  std::unique_ptr<lmx::Model> model_;
  std::unique_ptr<lmx::Loss> loss_;

 private:
  void update(int64_t step);
  lmx::ParameterStore params_;
  std::unique_ptr<lmx::Optimizer> optimizer_;
  double rate_;
  std::vector<lmx::ClipRule> clip_;
};

struct WorkloadScale {
  bool paper = false;  // the sizes of the papers, for GPUs, instead of sizes for CPUs
  bool quick = false;  // with few cells and tokens, but as many layers and time steps
};

std::vector<std::string> workload_names();
// REQUIRES: `name` is one of workload_names().
std::unique_ptr<Workload> make_workload(const std::string& name, lmx::Context& ctx, WorkloadScale scale);

}  // namespace lmx_cli
