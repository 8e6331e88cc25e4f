// The functions of CUDA's runtime API over the emulated device.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "fault.h"
#include "include/cuda_runtime.h"
#include "memory.h"
#include "simt.h"
#include "stream.h"

namespace {

using namespace cuda_emulator;

constexpr size_t kSharedByDefault = size_t{48} << 10, kSharedAtMost = size_t{227} << 10, kMostArguments = 4096;
constexpr int kCacheBytes = 1 << 18;  // much smaller than that of a GPU, so that tests which exceed it stay fast
constexpr size_t kGraphBytes = 1024;  // of the device's memory, for each operation

thread_local std::string next_name = "kernel";
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

// LMX_EMULATED_DEVICES: their number. They share one memory, but refuse the streams of each other.
int devices() {
  static const int count = [] {
    const char* given = std::getenv("LMX_EMULATED_DEVICES");
    return given ? std::stoi(given) : 1;
  }();
  return count;
}
bool is_device(int device) {
  return device >= 0 && device < devices();
}

// The error that was wanted when this function was first called: `driver` (older than the runtime), `architecture` (no
// kernel is for the device), or `lost:N` (the device fails at launch number N of the process).
const std::string& first_wanted_error() {
  static const auto& wanted = *new std::string(wanted_error());
  return wanted;
}

int64_t launches_left() {
  const std::string& wanted = first_wanted_error();
  return wanted.starts_with("lost:") ? std::stoll(wanted.substr(5)) : INT64_MAX;
}

bool lost = false;

cudaError_t remember(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
  return code;
}

// A call of the API: one at a time, and its error is kept for cudaGetLastError().
template <class Body>
cudaError_t call(Body&& body) {
  const std::lock_guard lock(device_mutex());
  return remember(lost ? cudaErrorECCUncorrectable : body());
}

// A call that waits or allocates, which a graph cannot contain.
template <class Body>
cudaError_t immediate(Body&& body) {
  return call([&]() -> cudaError_t {
    if (refuse_in_capture()) return cudaErrorStreamCaptureUnsupported;
    return body();
  });
}

std::map<const void*, size_t>& allowed_shared() {
  static auto& bytes = *new std::map<const void*, size_t>;
  return bytes;
}

bool fits(const void* address, bool device) {
  return on_device(address) == device;
}

bool kind_matches(const void* to, const void* from, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return fits(to, false) && fits(from, false);
    case cudaMemcpyHostToDevice:
      return fits(to, true) && fits(from, false);
    case cudaMemcpyDeviceToHost:
      return fits(to, false) && fits(from, true);
    case cudaMemcpyDeviceToDevice:
      return fits(to, true) && fits(from, true);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

void check_copy(const void* to, const void* from, size_t bytes) {
  if (on_device(to)) check_range("a copy", to, bytes);
  if (on_device(from)) check_range("a copy", from, bytes);
}

// As CUDA documents it: page-locked memory is read and written when the copy runs, pageable memory is read at once, and
// a copy to pageable memory returns when it is complete.
cudaError_t copy_later(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!kind_matches(to, from, kind)) return cudaErrorInvalidValue;
  if (bytes == 0) return cudaSuccess;
  check_copy(to, from, bytes);
  if (!on_device(from) && !pinned(from)) {
    if (refuse_in_capture()) return cudaErrorStreamCaptureUnsupported;
    const std::string staged(static_cast<const char*>(from), bytes);
    enqueue(stream, [to, staged] { std::memcpy(to, staged.data(), staged.size()); });
  } else {
    enqueue(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
  }
  if (on_device(to) || pinned(to)) return cudaSuccess;
  if (refuse_in_capture()) return cudaErrorStreamCaptureUnsupported;
  run_stream(stream);
  return cudaSuccess;
}

cudaError_t fill_later(void* block, int value, size_t bytes, cudaStream_t stream) {
  if (!on_device(block)) return cudaErrorInvalidValue;
  if (bytes == 0) return cudaSuccess;
  check_range("a fill", block, bytes);
  enqueue(stream, [block, value, bytes] { std::memset(block, value, bytes); });
  return cudaSuccess;
}

cudaError_t allocate_into(void** block, size_t bytes) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  *block = allocate(bytes);
  return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}

// Limits of an H100.
cudaError_t check_launch(const cudaLaunchConfig_t& c, const void* kernel, size_t argument_bytes) {
  const dim3 &g = c.gridDim, &b = c.blockDim;
  const bool empty = g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0;
  const bool large = g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || b.z > 64 || uint64_t{b.x} * b.y * b.z > 1024;
  if (empty || large) return cudaErrorInvalidConfiguration;
  const auto found = allowed_shared().find(kernel);
  if (c.dynamicSmemBytes > (found == allowed_shared().end() ? kSharedByDefault : found->second))
    return cudaErrorInvalidValue;
  return argument_bytes > kMostArguments ? cudaErrorInvalidValue : cudaSuccess;
}

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const ErrorText& text_of(cudaError_t code) {
  static constexpr ErrorText kUnknown{cudaSuccess, "unrecognized error code", "unrecognized error code"};
  const auto* found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorText& e) { return e.code == code; });
  return found == std::end(kErrors) ? kUnknown : *found;
}

}  // namespace

namespace cuda_emulator {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, size_t argument_bytes,
                   std::function<void()> body) {
  return call([&]() -> cudaError_t {
    if (const cudaError_t code = check_launch(config, kernel, argument_bytes); code != cudaSuccess) return code;
    if (config.stream && stream_of(config.stream)->device != current_device) return cudaErrorInvalidResourceHandle;
    static int64_t left = launches_left();
    if (lost = --left <= 0; lost) return cudaSuccess;  // as on a device, a later call returns the error
    const bool early = config.numAttrs > 0 && config.attrs->val.programmaticStreamSerializationAllowed;
    enqueue(config.stream, [l = Launch{config.gridDim, config.blockDim, config.dynamicSmemBytes,
                                       std::exchange(next_name, "kernel"), early, std::move(body)}] { run(l); });
    return cudaSuccess;
  });
}

void check_argument(const void* argument, size_t bytes) {
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* value = nullptr;
    std::memcpy(&value, static_cast<const char*>(argument) + at, sizeof value);
    if (of_host_alone(value)) fault("[", next_name, "] byte ", at, " of an argument is the address of host memory");
  }
}

bool kernels_missing() {
  return first_wanted_error() == "architecture";
}

void name_next_kernel(const char* name) {
  next_name = name;
}

cudaError_t allow_shared(const void* kernel, int bytes) {
  return call([&]() -> cudaError_t {
    if (bytes < 0 || static_cast<size_t>(bytes) > kSharedAtMost) return cudaErrorInvalidValue;
    allowed_shared()[kernel] = static_cast<size_t>(bytes);
    return cudaSuccess;
  });
}

}  // namespace cuda_emulator

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}
const char* cudaGetErrorString(cudaError_t error) {
  return text_of(error).text;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (first_wanted_error() == "driver") return remember(cudaErrorInsufficientDriver);
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  *properties = {"Emulated CUDA device", {}, memory_bytes(), cuda_emulator::kernels_missing() ? 8 : 9, 0, kCacheBytes};
  std::memcpy(properties->uuid.bytes, "emulated", 8);
  std::memcpy(properties->uuid.bytes + 8, &device, sizeof device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kSharedAtMost);
      return cudaSuccess;
  }
  return remember(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize() {
  return immediate([] {
    run_all();
    return cudaSuccess;
  });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = first_wanted_error() == "driver" ? 12020 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** block, size_t bytes) {
  return immediate([&] { return allocate_into(block, bytes); });
}
// CUDA waits for all work of the device before it returns.
cudaError_t cudaFree(void* block) {
  if (!block) return cudaSuccess;
  return immediate([&] {
    run_all();
    release(block);
    return cudaSuccess;
  });
}
cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t stream) {
  return immediate([&] {
    (void)stream_of(stream);
    return allocate_into(block, bytes);
  });
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  if (!block) return cudaSuccess;
  return immediate([&] { return enqueue(stream, [block] { release(block); }), cudaSuccess; });
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = nullptr;
  return remember(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}
// The pool keeps no released memory.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned int) {
  return immediate([&] {
    *block = allocate_pinned(bytes);
    return *block ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}
cudaError_t cudaFreeHost(void* block) {
  if (!block) return cudaSuccess;
  return immediate([&] {
    run_all();
    return release_pinned(block) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  return call([&] {
    *available = free_bytes();
    *total = memory_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return immediate([&] {
    const cudaError_t code = copy_later(to, from, bytes, kind, nullptr);
    if (code == cudaSuccess) run_stream(nullptr);
    return code;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return copy_later(to, from, bytes, kind, stream); });
}
cudaError_t cudaMemset(void* block, int value, size_t bytes) {
  return immediate([&] {
    const cudaError_t code = fill_later(block, value, bytes, nullptr);
    if (code == cudaSuccess) run_stream(nullptr);
    return code;
  });
}
cudaError_t cudaMemsetAsync(void* block, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { return fill_later(block, value, bytes, stream); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return immediate([&]() -> cudaError_t {
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;  // others would have an order with stream 0
    *stream = make_stream(current_device);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return immediate([&] { return destroy_stream(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return immediate([&] {
    run_stream(stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return call([&]() -> cudaError_t {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (!event->stream) return cudaSuccess;  // never recorded: nothing to wait for
    Stream& waiting = *stream_of(stream);
    if (waiting.capture) return cudaErrorNotSupported;  // graphs of lmx have one stream
    waiting.queue.push_back({nullptr, event->stream, event->position});
    ++waiting.issued;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  *event = new CUevent_st{.timed = (flags & cudaEventDisableTiming) == 0, .device = current_device};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&]() -> cudaError_t {
    if (!event) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    if (!event) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Stream> recorded = stream_of(stream);
    if (recorded->capture) return cudaErrorNotSupported;
    if (stream && recorded->device != event->device) return cudaErrorInvalidResourceHandle;
    if (event->timed) event->time = enqueue_clock(stream);
    event->stream = recorded;
    event->position = recorded->issued;
    event->asked = false;
    return cudaSuccess;
  });
}
// Says once that the event is not ready, so that a caller which does not repeat the question is found.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return immediate([&]() -> cudaError_t {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (!event->stream || event->stream->done >= event->position) return cudaSuccess;
    if (!std::exchange(event->asked, true)) return cudaErrorNotReady;
    run_until(*event->stream, event->position);
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return immediate([&]() -> cudaError_t {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (event->stream) run_until(*event->stream, event->position);
    return cudaSuccess;
  });
}
// The time of an emulated device is the number of its operations, which run when the host waits for them.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call([&]() -> cudaError_t {
    if (!begin || !end || !begin->time || !end->time) return cudaErrorInvalidResourceHandle;
    if (begin->stream->done < begin->position || end->stream->done < end->position) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(static_cast<int64_t>(*end->time - *begin->time)) * 1e-3f;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&] { return begin_capture(stream, mode); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&] { return end_capture(stream, graph); });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call([&] {
    const auto s = stream_of(stream);
    *status = !s->capture         ? cudaStreamCaptureStatusNone
              : s->capture_failed ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return immediate([&]() -> cudaError_t {
    if (!graph) return cudaErrorInvalidValue;
    void* memory = allocate(graph->operations.size() * kGraphBytes);
    if (!memory) return cudaErrorMemoryAllocation;
    *executable = new CUgraphExec_st{graph->operations, memory};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  return executable ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    if (!executable) return cudaErrorInvalidValue;
    for (const Operation& operation : executable->operations) enqueue(stream, operation.work);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return immediate([&] {
    release(executable->memory);
    delete executable;
    return cudaSuccess;
  });
}

}  // extern "C"
