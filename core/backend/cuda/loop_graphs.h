// Loops over time as CUDA graphs. A step of a recurrent layer is a few short kernels, so the time between launches, not
// the work, would decide how long a loop takes; the kernels of a graph follow each other without the host.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "backend/cuda/cuda_check.h"
#include "lmx/context.h"

namespace lmx::cuda {

// Graphs by their work: every argument of every kernel, including addresses. A graph is therefore replayed only if the
// loop would enqueue exactly its work. The allocator gives the same addresses in most steps, since their requests are
// the same.
class LoopGraphs {
 public:
  // Enqueues the work of `steps` on ctx.stream. The first loop with this work runs kernel by kernel, the second is
  // captured, and later ones are replayed.
  void run(Context& ctx, const std::function<void(Context&)>& steps);

 private:
  // cudaErrorMemoryAllocation: the device has no memory for the graph.
  cudaError_t capture(const Context& ctx, const std::function<void(Context&)>& steps, cudaGraphExec_t& graph);
  void make_room(cudaStream_t stream);

  std::mutex mutex_;
  int64_t kernels_ = 0;                            // of all loops in graphs_
  cudaStream_t stream_ = nullptr;                  // from which graphs are captured: other threads use the device's
  std::map<std::string, cudaGraphExec_t> graphs_;  // null: the work was enqueued once
};

}  // namespace lmx::cuda
