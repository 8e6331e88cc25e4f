#include "backend/cuda/loop_graphs.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/loop_work.h"
#include "lmx/error.h"

namespace lmx::cuda {
namespace {

constexpr int64_t kFewest = 8;             // kernels of a loop for which a graph pays
constexpr int64_t kMostKernels = 1 << 17;  // of all loops; the driver needs about 1 kB of memory for each
constexpr int64_t kMostShare = 16;         // graphs take at most one part in so many of the device's memory

// LMX_CUDA_GRAPHS=0 launches every kernel by itself. The results have the same bits.
bool graphs_enabled() {
  static const bool enabled = [] {
    const char* given = std::getenv("LMX_CUDA_GRAPHS");
    return !given || std::strcmp(given, "0") != 0;
  }();
  return enabled;
}

struct Memory {
  int64_t free, total;
};
Memory memory_of_device() {
  size_t free = 0, total = 0;
  LMX_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
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
    graphs_.emplace(std::move(text), Graph());
    kernels_ += work.pieces;
    lock.unlock();
    return steps(ctx);
  }
  Graph& graph = found->second;
  cudaError_t code = cudaSuccess;
  if (!graph.executable && !graph.direct) code = capture(ctx, steps, graph);
  if (code == cudaSuccess && graph.executable) code = cudaGraphLaunch(graph.executable, stream);
  const bool full = code == cudaErrorMemoryAllocation;  // or the graphs take more memory than they may
  const bool direct = full || graph.direct;
  if (full) {
    (void)cudaGetLastError();
    make_room(stream);
  }
  if (direct) {
    lock.unlock();
    return steps(ctx);
  }
  LMX_CUDA_CHECK(code);
  device(ctx.device.index).count_launch("graph");
}

cudaError_t LoopGraphs::capture(const Context& ctx, const std::function<void(Context&)>& steps, Graph& graph) {
  if (!stream_) LMX_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  Context captured = ctx;
  captured.stream = stream_;
  captured.tracer = nullptr;
  LoopWork work{.stream = stream_};
  cudaGraph_t captured_graph = nullptr;
  LMX_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  try {
    const InLoop in_loop(work);
    steps(captured);
  } catch (...) {
    (void)cudaStreamEndCapture(stream_, &captured_graph);
    if (captured_graph) (void)cudaGraphDestroy(captured_graph);
    device(ctx.device.index).fence()->wait();  // throws if the device has failed, which is the cause then
    throw;
  }
  LMX_CUDA_CHECK(cudaStreamEndCapture(stream_, &captured_graph));
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  const Memory before = memory_of_device();
  cudaError_t code = cudaGraphInstantiate(&graph.executable, captured_graph, 0);
  if (code == cudaSuccess) code = cudaGraphUpload(graph.executable, stream);  // which the first launch would do
  LMX_CUDA_CHECK(cudaGraphDestroy(captured_graph));
  if (code != cudaSuccess) {
    destroy(graph);
    return code;
  }
  graph.bytes = std::max<int64_t>(0, before.free - memory_of_device().free);
  bytes_ += graph.bytes;
  peak_ = std::max(peak_.load(), bytes_.load());
  const int64_t most = before.total / kMostShare;
  if (graph.bytes > most) {
    LMX_CUDA_CHECK(cudaStreamSynchronize(stream));
    destroy(graph);
    graph.direct = true;
  } else if (bytes_ > most) {
    return cudaErrorMemoryAllocation;
  }
  return code;
}

void LoopGraphs::destroy(Graph& graph) {
  if (graph.executable) LMX_CUDA_CHECK(cudaGraphExecDestroy(graph.executable));
  graph.executable = nullptr;
  bytes_ -= std::exchange(graph.bytes, 0);
}

// Graphs of shapes and addresses that do not occur again, as with batches of sentences, would stay forever.
void LoopGraphs::make_room(cudaStream_t stream) {
  LMX_CUDA_CHECK(cudaStreamSynchronize(stream));
  for (auto& [text, graph] : graphs_) destroy(graph);
  graphs_.clear();
  kernels_ = 0;
}

}  // namespace lmx::cuda
