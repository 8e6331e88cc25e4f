#include "backend/cuda/device.h"

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/cuda/loop_graphs.h"
#include "backend/loop_work.h"
#include "base/hex.h"

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

class EventClock final : public DeviceClock {
 public:
  explicit EventClock(CudaDevice& device) : device_(device), stream_(static_cast<cudaStream_t>(device.stream())) {}
  ~EventClock() override { clear(); }
  int64_t mark() override {
    device_.select();
    cudaEvent_t event = nullptr;
    LMX_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    LMX_CUDA_CHECK(cudaEventRecord(event, stream_));
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
  cudaStream_t stream_;
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
    select();
    if (!has_kernels()) throw UserError(other_architecture(index));
    LMX_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    LMX_CUDA_CHECK(cudaStreamCreateWithFlags(&exchange_stream_, cudaStreamNonBlocking));
    memory_ = make_memory(index, stream_, *this);
    pinned_ = make_pinned(*this);
  }
  std::shared_ptr<Allocator> memory() override { return memory_; }
  std::shared_ptr<Allocator> pinned() override { return pinned_; }
  void* stream() override {
    select();  // the caller's thread will launch kernels
    return stream_;
  }
  void* exchange_stream() override {
    select();
    return exchange_stream_;
  }
  // A stream that waits for an event waits for what the event has recorded until then, so one event serves all calls.
  void order(void* earlier, void* later) override {
    if (earlier == later) return;
    select();
    const std::lock_guard lock(mutex_);
    if (!event_) LMX_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    LMX_CUDA_CHECK(cudaEventRecord(event_, static_cast<cudaStream_t>(earlier)));
    LMX_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(later), event_, 0));
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
        cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(from.bytes()), cudaMemcpyDefault, stream_));
    count_moved(within ? &DeviceCounts::copies : up ? &DeviceCounts::uploads : &DeviceCounts::downloads, from.bytes());
    if (!within) keep(up ? from : to);  // memory of the device is freed in the order of the stream
  }

  GraphMemory graph_memory() const override { return graphs_.memory(); }

  std::unique_ptr<DeviceClock> clock() override { return std::make_unique<EventClock>(*this); }

  std::shared_ptr<Fence> fence() override {
    select();
    return std::make_shared<EventFence>(stream_, *this);
  }
  std::shared_ptr<Fence> exchange_fence() override {
    select();
    return std::make_shared<EventFence>(exchange_stream_, *this);
  }

 private:
  struct Kept {
    std::shared_ptr<EventFence> copied;
    Tensor host;
  };

  void keep(const Tensor& host) {
    std::vector<Kept> done;  // freed after the lock: freeing a tensor may take the allocator's
    const std::lock_guard lock(mutex_);
    while (!kept_.empty() && kept_.front().copied->done()) {
      done.push_back(std::move(kept_.front()));
      kept_.pop_front();
    }
    kept_.push_back({std::make_shared<EventFence>(stream_, *this), host});
  }

  int index_;
  cudaStream_t stream_ = nullptr, exchange_stream_ = nullptr;
  cudaEvent_t event_ = nullptr;  // of order()
  std::shared_ptr<Allocator> memory_, pinned_;
  LoopGraphs graphs_;
  std::mutex mutex_;
  std::deque<Kept> kept_;  // copies that may still run, in the order of the stream
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
