#include "stream.h"

#include <algorithm>
#include <set>

#include "fault.h"
#include "memory.h"
#include "simt.h"

namespace cuda_emulator {
namespace {

const std::shared_ptr<Stream>& stream_zero() {
  static auto& zero = *new std::shared_ptr<Stream>(std::make_shared<Stream>());
  return zero;
}

std::set<cudaStream_t>& handles() {
  static auto& all = *new std::set<cudaStream_t>;
  return all;
}

std::vector<std::shared_ptr<Stream>> all_streams() {
  std::vector<std::shared_ptr<Stream>> all{stream_zero()};
  for (const cudaStream_t handle : handles()) all.push_back(handle->stream);
  return all;
}

uint64_t operations_run = 0;

void run_one(Stream& stream) {
  const Operation next = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (next.stream) run_until(*next.stream, next.position);
  if (next.work) next.work();
  ++stream.done;
  ++operations_run;
}

}  // namespace

std::recursive_mutex& device_mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

std::shared_ptr<Stream> stream_of(cudaStream_t handle) {
  if (!handle) return stream_zero();
  if (!handles().contains(handle)) fault("a stream that was destroyed, or is none, is used");
  return handle->stream;
}

cudaStream_t make_stream(int device) {
  const auto handle = new CUstream_st{std::make_shared<Stream>()};
  handle->stream->device = device;
  handles().insert(handle);
  return handle;
}

// CUDA destroys a stream when its operations have run.
cudaError_t destroy_stream(cudaStream_t handle) {
  if (!handle || !handles().contains(handle)) return cudaErrorInvalidResourceHandle;
  run_stream(handle);
  handles().erase(handle);
  delete handle;
  return cudaSuccess;
}

void enqueue(cudaStream_t handle, std::function<void()> work) {
  Stream& stream = *stream_of(handle);
  Operation operation{std::move(work)};
  if (stream.capture) {
    stream.capture->push_back(std::move(operation));
    return;
  }
  stream.queue.push_back(std::move(operation));
  ++stream.issued;
}

void run_until(Stream& stream, uint64_t position) {
  const DeviceAccess access;
  while (stream.done < position) run_one(stream);
}

void run_stream(cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = stream_of(handle);
  run_until(*stream, stream->issued);
}

std::shared_ptr<uint64_t> enqueue_clock(cudaStream_t handle) {
  auto time = std::make_shared<uint64_t>(0);
  enqueue(handle, [time] { *time = operations_run; });
  return time;
}

void run_all() {
  const DeviceAccess access;
  while (true) {
    std::vector<std::shared_ptr<Stream>> open = all_streams();
    std::erase_if(open, [](const auto& stream) { return stream->queue.empty(); });
    if (open.empty()) break;
    size_t next = order() == Order::descending ? open.size() - 1 : 0;
    if (order() == Order::scrambled) next = next_random(open.size());
    run_one(*open[next]);
  }
  check_guards();
}

cudaError_t begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream& stream = *stream_of(handle);
  if (!handle || stream.capture) return cudaErrorStreamCaptureUnsupported;
  stream.capture = std::make_shared<std::vector<Operation>>();
  stream.capture_failed = false;
  stream.mode = mode;
  stream.capturing = std::this_thread::get_id();
  return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t handle, cudaGraph_t* graph) {
  Stream& stream = *stream_of(handle);
  if (!stream.capture) return cudaErrorStreamCaptureUnsupported;
  if (stream.mode != cudaStreamCaptureModeRelaxed && stream.capturing != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const auto recorded = std::move(stream.capture);
  stream.capture = nullptr;
  *graph = nullptr;
  if (stream.capture_failed) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st{std::move(*recorded)};
  return cudaSuccess;
}

bool refuse_in_capture() {
  bool any = false;
  for (const auto& stream : all_streams()) {
    const bool own = stream->capturing == std::this_thread::get_id();
    const bool disturbs =
        own ? stream->mode != cudaStreamCaptureModeRelaxed : stream->mode == cudaStreamCaptureModeGlobal;
    if (!stream->capture || !disturbs) continue;
    stream->capture_failed = any = true;
  }
  return any;
}

}  // namespace cuda_emulator
