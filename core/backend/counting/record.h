// The work of forward and backward passes and of updates on a counting device, in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lmx/tensor.h"

namespace lmx {

// A product (m, k) (k, n), and what follows until the next one.
struct CountedWork {
  int64_t m = 0, n = 0, k = 0;  // 0: no product, the work before the first one
  int64_t times = 1;            // equal products in a row, with what follows each of them
  bool packed = false;          // the second factor was packed once for many products (PackedMatrix)
  bool within = false;          // a kernel of lmx computes it beside other work (count_product()); otherwise a product
                                // is one of the kernels
  int64_t kernels = 0;          // that were started, of all times
  int64_t in_loops = 0;         // of these, kernels of loops that a CUDA device replays (replay_steps())
  int64_t transfers = 0;        // copies and fills of memory, of all times
  int64_t written = 0;          // bytes of activations that were allocated, of all times
  int64_t rewritten = 0;        // bytes of products in such loops, where the loop had a product before, of all times
  double macs() const { return static_cast<double>(m) * static_cast<double>(n * times) * static_cast<double>(k); }
};
double macs_of(const std::vector<CountedWork>& part);

struct CountedPass {
  int64_t tokens = 0;  // targets
  std::vector<CountedWork> forward, backward;
  // By parameter: the number of entries of `backward` that were made when its gradient was complete.
  std::vector<std::pair<std::string, size_t>> ready;
  // Floating-point operations of products, forward and backward, for each target.
  double token_flops() const {
    return 2 * (macs_of(forward) + macs_of(backward)) / static_cast<double>(tokens > 0 ? tokens : 1);
  }
};

class StepRecord {
 public:
  void begin_pass(int64_t tokens);
  void begin_backward();
  void end_pass();
  // The update of the parameters, after the passes of a step.
  void begin_update();
  void continue_update() { part_ = &update_; }  // after end_update()
  void end_update() { part_ = nullptr; }
  // The gradient of a parameter is complete, and `exchange` is called, which is no part of the pass.
  void ready(const std::string& parameter, const std::function<void()>& exchange);
  // `output`: the memory of the product, `bytes` of it.
  void product(const CountedWork& product, const void* output = nullptr, int64_t bytes = 0);
  void kernel();
  void transfer();
  // The work until end_loop() belongs to a loop that a CUDA device replays.
  void begin_loop() { loop_.emplace(); }
  void end_loop() { loop_.reset(); }
  void allocated(MemClass c, int64_t bytes);
  // Bytes that were allocated outside of passes, where gradients are exchanged and parameters updated.
  int64_t allocated_outside() const { return outside_; }
  // The first of the passes with most targets, and the last pass, whose gradients become complete. Both are empty
  // before the first pass.
  const CountedPass& largest() const { return largest_; }
  const CountedPass& last() const { return last_; }
  const std::vector<CountedWork>& update() const { return update_; }  // the last one

 private:
  CountedPass largest_, last_;
  std::vector<CountedWork> update_;
  std::vector<CountedWork>* part_ = nullptr;   // null: between passes
  std::optional<std::set<const void*>> loop_;  // outputs of its products; empty: outside of loops
  int64_t outside_ = 0;
};

}  // namespace lmx
