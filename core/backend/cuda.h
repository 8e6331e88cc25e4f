// The interface between the core and liblmx_cuda.so. The library is loaded if it is located beside the core and a CUDA
// device is available, or from the path in the environment variable LMX_CUDA_LIBRARY.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lmx/context.h"
#include "lmx/tensor.h"
#include "lmx/trace.h"

namespace lmx {

// The stream on which a thread enqueues its work of a device. An exchange of data with other devices, and the kernels
// that encode, sum and decode the data, run on a separate stream, in parallel with the work that other threads enqueue.
enum class WorkStream : uint8_t { compute, exchange };
inline constexpr size_t kWorkStreams = 2;

// The stream of the calling thread; compute, unless an OnStream says otherwise.
WorkStream work_stream();

// While it lives, the calling thread enqueues its work on `stream`. A Context that was made before has the stream of
// that time: see use_stream_of_thread().
class OnStream {
 public:
  explicit OnStream(WorkStream stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  WorkStream before_;
};

// Arrays of small size in the memory of a device that are in use. All dropouts and attentions of a pass need the same
// row ids and lengths, so equal arrays are uploaded once.
class UploadCache {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 10;  // of an array; the comparison costs less than its upload

  // The array in memory of `allocator` with these bytes that was uploaded by work of `stream`, since work of another
  // stream could read it before it is uploaded; null if none is in use.
  std::shared_ptr<const Tensor> find(const Allocator& allocator, const void* stream, std::span<const std::byte> bytes);
  // No kernel may change `copy`.
  void add(const Allocator& allocator, const void* stream, std::span<const std::byte> bytes,
           const std::shared_ptr<const Tensor>& copy);

 private:
  struct Hash {
    size_t operator()(const std::string& key) const;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const Tensor>, Hash> entries_;  // by key_of()
  size_t checked_ = 64;  // entries at which those that are not in use are removed
};

// What a device was asked to do. A step is fast only if it needs few launches and the host rarely waits.
struct DeviceCounts {
  struct Moved {
    int64_t times = 0, bytes = 0;
  };
  std::map<std::string, int64_t, std::less<>>
      launches;              // of kernels, by the name of their op; "gemm", "graph" (a loop)
  Moved uploads, downloads;  // from the host, to the host
  Moved copies, fills;       // within the device; fills with zeros
  int64_t waits = 0;         // of the host, for work that was not done

  int64_t all_launches() const;
  DeviceCounts since(const DeviceCounts& before) const;  // names without launches since then are left out
};

// Memory of a device that CUDA graphs take: by how much its free memory decreased while they were made. Another process
// that takes memory of the device at the same time is counted, too.
struct GraphMemory {
  int64_t bytes = 0, peak = 0;  // now, and the maximum
};

// For waits of the host for work of a device that depends on other ranks.
struct WaitGuard {
  std::function<std::shared_ptr<void>()> begin;  // the wait lasts while the result lives
  std::function<void()> end;  // throws if the work has ended without a result, because an exchange has failed
};

// A point in the work of a stream of a device.
class StreamPoint {
 public:
  virtual ~StreamPoint();
  virtual bool reached() const = 0;  // does not wait
  // Seconds in which the device came from `earlier` to this point. REQUIRES: both are reached.
  virtual double seconds_since(const StreamPoint& earlier) const = 0;
};

// One CUDA device in this process. A thread enqueues its work on one stream (WorkStream), where it runs in the order in
// which it was enqueued, also for ranks that share the device. The work of two streams has an order only where
// wait_for() makes one.
class CudaDevice {
 public:
  virtual ~CudaDevice();
  // Device memory. A block that is freed and allocated again is used by later work of its stream, hence in order
  // (tensor/caching_allocator.h).
  virtual std::shared_ptr<Allocator> memory() = 0;
  // Page-locked memory of the host, from and to which copies run beside the host.
  virtual std::shared_ptr<Allocator> pinned() = 0;
  virtual int capability() const = 0;  // compute capability, 900 for 9.0
  virtual void* stream() = 0;          // of the calling thread's work, a cudaStream_t
  // The point after all work that is enqueued on the calling thread's stream now.
  virtual std::shared_ptr<const StreamPoint> point() = 0;
  // Work that the calling thread enqueues from now on runs after that point. The host does not wait.
  virtual void wait_for(const StreamPoint& point) = 0;
  // Work of `stream` uses a tensor of this device. If a thread of another stream frees the tensor's memory while the
  // result lives, no other tensor gets it before a later wait_for() of a point of `stream`.
  virtual std::shared_ptr<void> share(const Tensor& t, WorkStream stream) = 0;
  // The calling thread's CUDA calls concern this device from now on; a new thread's concern device 0.
  virtual void select() = 0;
  // Enqueues a copy between the device and the host, or within the device, of tensors of equal shape and type. Both are
  // kept until it has run.
  virtual void copy(Tensor& to, const Tensor& from) = 0;
  virtual std::shared_ptr<Fence> fence() = 0;        // point() for the host
  virtual std::unique_ptr<DeviceClock> clock() = 0;  // of the work on the calling threads' streams
  virtual void replay(Context& ctx, const std::function<void(Context&)>& steps) = 0;  // see replay_steps()
  virtual GraphMemory graph_memory() const = 0;                                       // of replay()

  DeviceCounts counts() const;  // since the process began
  void count_launch(std::string_view name);
  void count_moved(DeviceCounts::Moved DeviceCounts::*moved, int64_t bytes);
  void count_wait();
  UploadCache& uploads() { return uploads_; }
  // Null: waits depend on this rank alone.
  void guard_waits(std::shared_ptr<const WaitGuard> guard);
  std::shared_ptr<const WaitGuard> wait_guard() const;

 private:
  UploadCache uploads_;
  mutable std::mutex counting_;
  DeviceCounts counts_;
  std::shared_ptr<const WaitGuard> guard_;
};

// What CUDA reports about a device. Versions are as CUDA counts them: 13020 is 13.2.
struct CudaDeviceInfo {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;  // its compute capability
  int64_t memory = 0;        // bytes
  int64_t cache = 0;         // bytes of its L2 cache
  int driver = 0;            // the newest CUDA that the driver supports
  int runtime = 0;           // the CUDA of the runtime library
  std::string id;            // unique among all devices of all hosts: the UUID in hexadecimal digits
};
std::string cuda_version_text(int version);        // "13.2"
std::string describe(const CudaDeviceInfo& info);  // "NVIDIA H100 80GB HBM3, compute capability 9.0"

// Loads liblmx_cuda.so once, which adds its kernels to the kernel table. Returns the number of available devices: 0
// without the library, without a driver, or without a device (the reason is logged at debug level).
int load_cuda();

// The library that load_cuda() loads, whether or not it exists; "" if that is unknown.
std::string cuda_library_path();

// Why load_cuda() returns 0; "" if there is a device.
const std::string& cuda_unavailable();

// UserError if that device is not available, or if it has another architecture than the kernels of this build.
CudaDevice& cuda_device(int index);
// The same; for a device that counts, that device (backend/counting/device.h).
CudaDevice& cuda_device(Device device);

// UserError if that device is not available. Does not start to use the device.
CudaDeviceInfo cuda_device_info(int index);

// The device of a recipe's `device`: cpu, cuda, cuda:N, or auto, which is cuda:0 if there is a device, else the CPU.
// UserError, which begins with `place`: another text, or a device that is not available.
Device device_named(const std::string& name, const std::string& place);

// `ctx` computes on that device, whose memory it counts separately. UserError if the device is not available, or if
// LMX_CUDNN=1 and cuDNN is not.
void compute_on(Context& ctx, Device device);

// ctx.stream becomes the stream of the calling thread, for a context that another thread has made.
void use_stream_of_thread(Context& ctx);

// A copy of `t` in another device's memory (host to device, device to host, or on the host). Returns when it is
// complete.
Tensor copy_to(const Tensor& t, const std::shared_ptr<Allocator>& allocator);
// The same into an existing tensor of equal shape and type. Within one device the copy is only enqueued.
void copy_values(Tensor& to, const Tensor& from);

// Loads a plugin's CUDA kernels (NAME_cuda.so beside it) if a device is available.
void load_plugin_cuda(const std::string& plugin_path);

// The table that liblmx_cuda.so exports as `lmx_cuda_api`. A reader may access only the first `size` bytes.
struct CudaApi {
  uint32_t size;
  int devices;
  const char* reason;  // why no device is available
  const char* suffix;  // of the libraries with plugins' kernels: "_cuda.so"
  CudaDevice& (*device)(int index);
  CudaDeviceInfo (*info)(int index);
};

}  // namespace lmx
