// Loops over time as CUDA graphs. A step of a recurrent layer is a few short kernels, so the time between launches, not
// the work, would decide how long a loop takes; the kernels of a graph follow each other without the host.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "backend/cuda.h"
#include "backend/cuda/device.h"
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
  GraphMemory memory() const { return {bytes_.load(), peak_.load()}; }

 private:
  struct Graph {
    cudaGraphExec_t executable = nullptr;  // null: not captured
    int64_t bytes = 0;
    bool direct = false;  // it takes more memory than all graphs may, so the loop runs kernel by kernel
  };

  // cudaErrorMemoryAllocation: the device has no memory for the graph, or all graphs together take too much of it.
  cudaError_t capture(const Context& ctx, const std::function<void(Context&)>& steps, Graph& graph);
  void destroy(Graph& graph);
  void make_room(cudaStream_t stream);

  std::mutex mutex_;
  int64_t kernels_ = 0;                        // of all loops in graphs_
  std::atomic<int64_t> bytes_ = 0, peak_ = 0;  // of all graphs
  cudaStream_t stream_ = nullptr;              // from which graphs are captured: other threads use the device's
  std::map<std::string, Graph> graphs_;        // loops that were enqueued at least once
};

}  // namespace lmx::cuda
