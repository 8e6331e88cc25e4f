#include "backend/cuda/loop_graphs.h"

#include <cstdlib>
#include <cstring>

#include "backend/cuda/device.h"
#include "backend/loop_work.h"
#include "lmx/error.h"

namespace lmx::cuda {
namespace {

constexpr int64_t kFewest = 8;             // kernels of a loop for which a graph pays
constexpr int64_t kMostKernels = 1 << 17;  // of all loops; the driver needs about 1 kB of memory for each

// LMX_CUDA_GRAPHS=0 launches every kernel by itself. The results have the same bits.
bool graphs_enabled() {
  static const bool enabled = [] {
    const char* given = std::getenv("LMX_CUDA_GRAPHS");
    return !given || std::strcmp(given, "0") != 0;
  }();
  return enabled;
}

}  // namespace

void LoopGraphs::run(Context& ctx, const std::function<void(Context&)>& steps) {
  if (!graphs_enabled()) return steps(ctx);
  std::string text;
  LoopWork work{.text = &text};
  {
    Context describing = ctx;
    describing.tracer = nullptr;
    const InLoop in_loop(work);
    steps(describing);
  }
  if (work.pieces < kFewest || work.pieces > kMostKernels) return steps(ctx);
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  std::unique_lock lock(mutex_);
  const auto found = graphs_.find(text);
  if (found == graphs_.end()) {
    if (kernels_ + work.pieces > kMostKernels) make_room(stream);
    graphs_.emplace(std::move(text), nullptr);
    kernels_ += work.pieces;
    lock.unlock();
    return steps(ctx);
  }
  cudaError_t code = found->second ? cudaSuccess : capture(ctx, steps, found->second);
  if (code == cudaSuccess) code = cudaGraphLaunch(found->second, stream);
  if (code == cudaErrorMemoryAllocation) {  // the allocator took what the graphs need
    (void)cudaGetLastError();
    make_room(stream);
    lock.unlock();
    return steps(ctx);
  }
  LMX_CUDA_CHECK(code);
  device(ctx.device.index).count_launch("graph");
}

cudaError_t LoopGraphs::capture(const Context& ctx, const std::function<void(Context&)>& steps,
                                cudaGraphExec_t& executable) {
  if (!stream_) LMX_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  Context captured = ctx;
  captured.stream = stream_;
  captured.tracer = nullptr;
  LoopWork work{.stream = stream_};
  cudaGraph_t graph = nullptr;
  LMX_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  try {
    const InLoop in_loop(work);
    steps(captured);
  } catch (...) {
    (void)cudaStreamEndCapture(stream_, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    device(ctx.device.index).fence()->wait();  // throws if the device has failed, which is the cause then
    throw;
  }
  LMX_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  const cudaError_t code = cudaGraphInstantiate(&executable, graph, 0);
  LMX_CUDA_CHECK(cudaGraphDestroy(graph));
  if (code != cudaSuccess) executable = nullptr;
  return code;
}

// Graphs of shapes and addresses that do not occur again, as with batches of sentences, would stay forever.
void LoopGraphs::make_room(cudaStream_t stream) {
  LMX_CUDA_CHECK(cudaStreamSynchronize(stream));
  for (const auto& [text, graph] : graphs_)
    if (graph) LMX_CUDA_CHECK(cudaGraphExecDestroy(graph));
  graphs_.clear();
  kernels_ = 0;
}

}  // namespace lmx::cuda
