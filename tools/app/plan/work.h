// The time that a rank computes in a step, from the products and tensors of a counted step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/memory/counted.h"
#include "app/plan/machine.h"

namespace lmx::plan {

// Seconds on one device, without other ranks.
struct Work {
  double passes = 1;                      // forward and backward passes of a rank's step; the last one may be a part
  double forward_s = 0, backward_s = 0;   // of one pass
  std::map<std::string, double> ready_s;  // by parameter: from the begin of backward until its gradient is complete
  double update_s = 0;                    // clipping and optimizer
  double clip_s = 0;                      // the part of it for clipping
  // Replaces the times of a pass by measured ones. The gradients stay complete after the same parts of backward.
  void set_pass(double forward, double backward);
  double compute_s() const { return passes * (forward_s + backward_s) + update_s; }
};

// A product of a pass, forward or backward, or of an update.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool repeated = false;  // with the same second factor at each time step, which is packed once
  auto operator<=>(const ProductShape&) const = default;
};
// Those of a step, each once: the products whose times a plan needs. `within`: also those that a kernel computes beside
// other work, which are products by themselves on a CPU only.
std::vector<ProductShape> product_shapes(const RankCount& count, bool within);

// Estimates, from docs/plan.md:
//
// - The products of a pass and what is between them are those of the counted step. A product takes
//   DeviceConfig::product_s().
// - Each byte of an activation that a kernel allocates is written once and read once; backward also reads the bytes
//   that forward has written.
// - The kernels between two products take at least launch_us each. On a device that replays() each of them takes
//   replay_us beside its bytes, and the host starts the kernels outside of replayed loops, launch_us each, while the
//   device computes: the longer of both times counts.
// - The optimizer reads value, gradient and state and writes value and state, of all rows that the step changes;
//   clipping reads the gradients once more. Its products (Muon) take DeviceConfig::product_s() each.
Work work_of(const Recipe& recipe, const train::Network& network, const Shares& shares, const RankCount& count,
             const DeviceConfig& device);

}  // namespace lmx::plan
