#include "backend/cuda/device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/cuda/loop_graphs.h"
#include "backend/loop_work.h"
#include "base/sha256.h"

namespace lmx {
namespace {

// After one of these the device does no more work for the process: CUDA's documentation calls the process inconsistent.
constexpr cudaError_t kFatal[] = {
    cudaErrorECCUncorrectable,   cudaErrorIllegalAddress,     cudaErrorLaunchTimeout,
    cudaErrorHardwareStackError, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
    cudaErrorInvalidPc,          cudaErrorLaunchFailure,      cudaErrorUnknown,
};

}  // namespace

void cuda_failed(cudaError_t code, const char* expression, const char* file, int line) {
  const std::string error = str(cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  if (std::find(std::begin(kFatal), std::end(kFatal), code) == std::end(kFatal))
    throw RunError(str("[cuda] ", expression, " failed at ", file, ":", line, ": ", error));
  throw RunError(str("[cuda] the device has failed and does no more work for this process: ", error,
                     "; --resume continues the run from its last checkpoint. If this happens again, look for 'Xid' in ",
                     "the kernel's log (dmesg), which names faults of the hardware"));
}

}  // namespace lmx

namespace lmx::cuda {
namespace {

// Waits by polling: short waits cost no system call, long ones leave the processor to the threads that prepare batches.
class EventFence final : public Fence {
 public:
  EventFence(cudaStream_t stream, CudaDevice& counter) : counter_(counter) {
    LMX_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    LMX_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  ~EventFence() override { (void)cudaEventDestroy(event_); }
  bool done() {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return false;
    LMX_CUDA_CHECK(code);
    return true;
  }
  void wait() override {
    using namespace std::chrono_literals;
    constexpr auto kSpin = 50us, kSleep = 20us;
    const std::shared_ptr<const WaitGuard> guard = counter_.wait_guard();
    if (!done()) {
      counter_.count_wait();
      const std::shared_ptr<void> waiting = guard ? guard->begin() : nullptr;
      const auto begin = std::chrono::steady_clock::now();
      while (!done()) {
        if (std::chrono::steady_clock::now() - begin > kSpin) std::this_thread::sleep_for(kSleep);
      }
    }
    if (guard) guard->end();
  }

 private:
  CudaDevice& counter_;
  cudaEvent_t event_ = nullptr;
};

class EventPoint final : public StreamPoint {
 public:
  // `frees`: see CachingAllocator::passed().
  EventPoint(cudaStream_t on, WorkStream stream, uint64_t frees) : stream_(stream), frees_(frees) {
    LMX_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDefault));
    LMX_CUDA_CHECK(cudaEventRecord(event_, on));
  }
  ~EventPoint() override { (void)cudaEventDestroy(event_); }
  bool reached() const override {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return false;
    LMX_CUDA_CHECK(code);
    return true;
  }
  double seconds_since(const StreamPoint& earlier) const override {
    float milliseconds = 0;
    LMX_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<const EventPoint&>(earlier).event_, event_));
    return 1e-3 * static_cast<double>(milliseconds);
  }
  WorkStream stream() const { return stream_; }
  uint64_t frees() const { return frees_; }
  cudaEvent_t event() const { return event_; }

 private:
  WorkStream stream_;
  uint64_t frees_;
  cudaEvent_t event_ = nullptr;
};

class EventClock final : public DeviceClock {
 public:
  explicit EventClock(CudaDevice& device) : device_(device) {}
  ~EventClock() override { clear(); }
  int64_t mark() override {
    const auto stream = static_cast<cudaStream_t>(device_.stream());
    cudaEvent_t event = nullptr;
    LMX_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    LMX_CUDA_CHECK(cudaEventRecord(event, stream));
    return static_cast<int64_t>(events_.size()) - 1;
  }
  std::vector<double> times_us() override {
    device_.select();
    const std::lock_guard lock(mutex_);
    std::vector<double> times;
    for (const cudaEvent_t event : events_) {
      float milliseconds = 0;
      LMX_CUDA_CHECK(cudaEventSynchronize(event));
      LMX_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_.front(), event));
      times.push_back(1e3 * milliseconds);
    }
    return times;
  }
  void restart() override {
    clear();
    device_.fence()->wait();
    (void)mark();
  }

 private:
  void clear() {
    const std::lock_guard lock(mutex_);
    for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    events_.clear();
  }

  CudaDevice& device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> events_;
};

std::string other_architecture(int index) {
  const CudaDeviceInfo info = device_info(index);
  return str("[cuda] cuda:", index, " (", describe(info),
             ") is of an architecture for which this lmx has no kernels: ", "they are for ", LMX_CUDA_ARCHITECTURES,
             ". Configure the build with -DLMX_CUDA_ARCHITECTURES=", info.major, info.minor);
}

class RuntimeDevice final : public CudaDevice {
 public:
  explicit RuntimeDevice(int index) : index_(index) {
    const CudaDeviceInfo info = device_info(index);
    capability_ = 100 * info.major + 10 * info.minor;
    select();
    if (!has_kernels()) throw UserError(other_architecture(index));
    for (cudaStream_t& stream : streams_) LMX_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    memory_ = make_memory(index, streams_, *this);
    pinned_ = make_pinned(*this);
  }
  int capability() const override { return capability_; }
  std::shared_ptr<Allocator> memory() override { return memory_; }
  std::shared_ptr<Allocator> pinned() override { return pinned_; }
  void* stream() override {
    select();  // the caller's thread will launch kernels
    return own_stream();
  }
  // The number of frees is read first: the work that has used these blocks is enqueued before the event.
  std::shared_ptr<const StreamPoint> point() override {
    select();
    const uint64_t frees = memory_->frees();
    return std::make_shared<EventPoint>(own_stream(), work_stream(), frees);
  }
  void wait_for(const StreamPoint& point) override {
    const auto& event = static_cast<const EventPoint&>(point);
    if (event.stream() == work_stream()) return;
    select();
    LMX_CUDA_CHECK(cudaStreamWaitEvent(own_stream(), event.event(), 0));
    memory_->passed(static_cast<size_t>(event.stream()), event.frees(), static_cast<size_t>(work_stream()));
  }
  std::shared_ptr<void> share(const Tensor& t, WorkStream stream) override {
    const void* address = t.raw();
    const auto queue = static_cast<size_t>(stream);
    memory_->share(address, queue);
    return {nullptr, [memory = memory_, address, queue](void*) { memory->unshare(address, queue); }};
  }
  void select() override {
    thread_local int current = -1;
    if (current == index_) return;
    LMX_CUDA_CHECK(cudaSetDevice(index_));
    current = index_;
  }
  void replay(Context& ctx, const std::function<void(Context&)>& steps) override {
    select();
    graphs_.run(ctx, steps);
  }

  void copy(Tensor& to, const Tensor& from) override {
    LMX_CHECK(to.shape() == from.shape() && to.dtype() == from.dtype(), "copy of ", describe(from), " into ",
              describe(to));
    LMX_CHECK(!loop_work(), "a loop that may be replayed copies between the host and the device");
    if (from.numel() == 0) return;
    select();
    const bool up = from.device().kind == Device::Kind::cpu, within = to.device().kind == from.device().kind;
    // CUDA waits for a copy to memory that is not page-locked.
    const std::shared_ptr<const WaitGuard> guard = up || within ? nullptr : wait_guard();
    const std::shared_ptr<void> waiting = guard ? guard->begin() : nullptr;
    LMX_CUDA_CHECK(
        cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(from.bytes()), cudaMemcpyDefault, own_stream()));
    count_moved(within ? &DeviceCounts::copies : up ? &DeviceCounts::uploads : &DeviceCounts::downloads, from.bytes());
    if (!within) keep(up ? from : to);  // memory of the device is freed in the order of the stream
  }

  GraphMemory graph_memory() const override { return graphs_.memory(); }

  std::unique_ptr<DeviceClock> clock() override { return std::make_unique<EventClock>(*this); }

  std::shared_ptr<Fence> fence() override {
    select();
    return std::make_shared<EventFence>(own_stream(), *this);
  }

 private:
  struct Kept {
    std::shared_ptr<EventFence> copied;
    Tensor host;
  };

  void keep(const Tensor& host) {
    std::vector<Kept> done;  // freed after the lock: freeing a tensor may take the allocator's
    const std::lock_guard lock(mutex_);
    std::deque<Kept>& kept = kept_[static_cast<size_t>(work_stream())];
    while (!kept.empty() && kept.front().copied->done()) {
      done.push_back(std::move(kept.front()));
      kept.pop_front();
    }
    kept.push_back({std::make_shared<EventFence>(own_stream(), *this), host});
  }

  cudaStream_t own_stream() const { return streams_[static_cast<size_t>(work_stream())]; }

  int index_, capability_;
  Streams streams_{};
  std::shared_ptr<CachingAllocator> memory_;
  std::shared_ptr<Allocator> pinned_;
  LoopGraphs graphs_;
  std::mutex mutex_;
  std::array<std::deque<Kept>, kWorkStreams> kept_;  // copies that may still run, in the order of each stream
};

}  // namespace

CudaDeviceInfo device_info(int index) {
  cudaDeviceProp properties{};
  LMX_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  CudaDeviceInfo info;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.memory = static_cast<int64_t>(properties.totalGlobalMem);
  info.cache = properties.l2CacheSize;
  info.id = hexadecimal({properties.uuid.bytes, sizeof properties.uuid.bytes});
  LMX_CUDA_CHECK(cudaDriverGetVersion(&info.driver));
  LMX_CUDA_CHECK(cudaRuntimeGetVersion(&info.runtime));
  return info;
}

CudaDevice& device(int index) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<RuntimeDevice*>& devices = *new std::vector<RuntimeDevice*>;
  const std::lock_guard lock(mutex);
  const auto i = static_cast<size_t>(index);
  if (devices.size() <= i) devices.resize(i + 1);
  if (!devices[i]) devices[i] = new RuntimeDevice(index);
  return *devices[i];
}

}  // namespace lmx::cuda

// The one exported symbol of liblmx_cuda.so.

namespace lmx {
namespace {

// Why CUDA reports no device.
std::string reason_of(cudaError_t code) {
  if (code != cudaErrorInsufficientDriver) return cudaGetErrorString(code);
  int driver = 0, runtime = 0;
  LMX_CUDA_CHECK(cudaDriverGetVersion(&driver));
  LMX_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  return str("the driver of this machine supports CUDA up to ", cuda_version_text(driver), ", and this lmx uses CUDA ",
             cuda_version_text(runtime), "; install a newer driver");
}

CudaApi make_api() {
  CudaApi api{sizeof(CudaApi), 0, "", LMX_CUDA_SUFFIX, cuda::device, cuda::device_info};
  const cudaError_t code = cudaGetDeviceCount(&api.devices);
  if (code != cudaSuccess) {
    api.devices = 0;
    static const std::string reason = reason_of(code);
    api.reason = reason.c_str();
    (void)cudaGetLastError();
  } else if (api.devices == 0) {
    api.reason = "no device is visible";
  }
  return api;
}

}  // namespace
}  // namespace lmx

extern "C" [[gnu::visibility("default")]] const lmx::CudaApi* lmx_cuda_api() {
  static const lmx::CudaApi api = lmx::make_api();
  return &api;
}
