#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

#include "backend/counting/device.h"
#include "backend/cuda.h"
#include "backend/cudnn.h"
#include "backend/loop_work.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx {
namespace {

using ApiFunction = const CudaApi* (*)();

// A library that takes the place of liblmx_cuda.so, such as the emulated device of the tests; it needs no driver.
const char* given_path() {
  const char* given = std::getenv("LMX_CUDA_LIBRARY");
  return given && *given ? given : nullptr;
}

struct Loaded {
  const CudaApi* api = nullptr;  // null if there is no device
  std::string reason;            // why
};

// The library stays loaded, since the kernel table contains its kernels.
Loaded open_api() {
  const std::string path = cuda_library_path();
  if (given_path() && !std::filesystem::exists(path)) throw UserError(str("[cuda] LMX_CUDA_LIBRARY: no file ", path));
  if (path.empty() || !std::filesystem::exists(path)) return {nullptr, "this build of lmx has no liblmx_cuda.so"};
  // Without a driver there is no device; this check avoids mapping cuBLASLt's half gigabyte.
  if (!given_path() && !dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
    return {nullptr, "this machine has no CUDA driver (libcuda.so.1)"};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const std::string why = str(path, " cannot be loaded: ", dlerror());
    log_warn("[cuda] " + why);
    return {nullptr, why};
  }
  const auto function = reinterpret_cast<ApiFunction>(dlsym(handle, "lmx_cuda_api"));
  const CudaApi* api = function ? function() : nullptr;
  if (!api || api->size < sizeof(CudaApi)) {
    throw UserError(str("[cuda] ", path, ": is of another build than this lmx (", kVersion, "); rebuild it"));
  }
  return api->devices == 0 ? Loaded{nullptr, api->reason} : Loaded{api, ""};
}

const Loaded& loaded() {
  static std::once_flag once;
  static Loaded found;
  std::call_once(once, [] {
    found = open_api();
    if (!found.api) log_debug(str("[cuda] running on the CPU: ", found.reason));
  });
  return found;
}

const CudaApi* api() {
  return loaded().api;
}

}  // namespace

// Without LMX_CUDA_LIBRARY, liblmx_cuda.so in the folder of the library that contains this code.
std::string cuda_library_path() {
  if (given_path()) return given_path();
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&load_cuda), &info) || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path() / "liblmx_cuda.so";
}

int load_cuda() {
  return api() ? api()->devices : 0;
}

const std::string& cuda_unavailable() {
  return loaded().reason;
}

Device device_named(const std::string& name, const std::string& place) {
  if (name == "cpu" || (name == "auto" && load_cuda() == 0)) return {};
  const std::string number = name.starts_with("cuda:") ? name.substr(5) : "0";
  const std::optional<int64_t> index = parse_int(number);
  const bool known = name == "auto" || name == "cuda" || name.starts_with("cuda:");
  if (!known || !index || *index < 0 || *index > 1023)
    throw UserError(str(place, "'", name, "' is no device; there are auto, cpu, cuda and cuda:N"));
  if (load_cuda() == 0)
    throw UserError(str(place, name, " is not available: ", cuda_unavailable(),
                        "; device=cpu computes on the CPU (of a saved run: --device cpu)"));
  if (*index >= load_cuda())
    throw UserError(str(place, name, " is not available: the devices are cuda:0 to cuda:", load_cuda() - 1));
  return {Device::Kind::cuda, static_cast<int>(*index)};
}

CudaDevice::~CudaDevice() = default;
StreamPoint::~StreamPoint() = default;

namespace {

void require_device(int index) {
  const int devices = load_cuda();
  if (index < 0 || index >= devices) throw UserError(str("[cuda] no device cuda:", index, "; ", devices, " answer"));
}

}  // namespace

CudaDevice& cuda_device(int index) {
  require_device(index);
  return api()->device(index);
}

CudaDevice& cuda_device(Device device) {
  return device.counts ? counting_device(device.index) : cuda_device(device.index);
}

CudaDeviceInfo cuda_device_info(int index) {
  require_device(index);
  return api()->info(index);
}

std::string cuda_version_text(int version) {
  return str(version / 1000, ".", version % 1000 / 10);
}

std::string describe(const CudaDeviceInfo& info) {
  return str(info.name, ", compute capability ", info.major, ".", info.minor);
}

void compute_on(Context& ctx, Device device) {
  if (device.counts) return counting_device(device.index).place(ctx);
  ctx.device = device;
  if (device.kind == Device::Kind::cpu) return;
  CudaDevice& cuda = cuda_device(device);
  check_required_cudnn();
  ctx.allocator = Allocator::counting(cuda.memory());
  ctx.host = Allocator::counting(cuda.pinned());
  ctx.stream = cuda.stream();
}

void use_stream_of_thread(Context& ctx) {
  if (ctx.device.kind == Device::Kind::cuda) ctx.stream = cuda_device(ctx.device).stream();
}

Tensor copy_to(const Tensor& t, const std::shared_ptr<Allocator>& allocator) {
  Tensor out = Tensor::empty(allocator, t.shape(), t.dtype(), t.mem_class());
  if (t.numel() == 0) return out;
  copy_values(out, t);
  if (out.device().kind == Device::Kind::cuda) cuda_device(out.device()).fence()->wait();
  return out;
}

void copy_values(Tensor& to, const Tensor& from) {
  if (to.device() == from.device()) return to.copy_from(from);
  LMX_CHECK(to.dtype() == from.dtype() && to.shape() == from.shape(), "copy of ", describe(from), " into ",
            describe(to));
  if (to.numel() == 0) return;
  CudaDevice& device = cuda_device(from.device() == Device{} ? to.device() : from.device());
  device.copy(to, from);
  device.fence()->wait();
}

void load_plugin_cuda(const std::string& plugin_path) {
  std::filesystem::path path = plugin_path;
  if (load_cuda() == 0) return;
  path.replace_filename(path.stem().string() + api()->suffix);
  if (!std::filesystem::exists(path)) return;
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
    throw UserError(str("[plugin] ", path.string(), ": cannot be loaded: ", dlerror()));
}

namespace {

DeviceCounts::Moved difference(const DeviceCounts::Moved& now, const DeviceCounts::Moved& before) {
  return {now.times - before.times, now.bytes - before.bytes};
}

}  // namespace

int64_t DeviceCounts::all_launches() const {
  int64_t all = 0;
  for (const auto& [name, times] : launches) all += times;
  return all;
}

DeviceCounts DeviceCounts::since(const DeviceCounts& before) const {
  DeviceCounts counts{{},
                      difference(uploads, before.uploads),
                      difference(downloads, before.downloads),
                      difference(copies, before.copies),
                      difference(fills, before.fills),
                      waits - before.waits};
  for (const auto& [name, times] : launches) {
    const auto earlier = before.launches.find(name);
    const int64_t added = times - (earlier == before.launches.end() ? 0 : earlier->second);
    if (added > 0) counts.launches.emplace(name, added);
  }
  return counts;
}

DeviceCounts CudaDevice::counts() const {
  const std::lock_guard lock(counting_);
  return counts_;
}

// The kernels and copies of a captured loop are part of a graph, which counts as one launch.
void CudaDevice::count_launch(std::string_view name) {
  if (loop_work()) return;
  const std::lock_guard lock(counting_);
  const auto found = counts_.launches.find(name);
  found == counts_.launches.end() ? (void)counts_.launches.emplace(name, 1) : (void)++found->second;
}

void CudaDevice::count_moved(DeviceCounts::Moved DeviceCounts::*moved, int64_t bytes) {
  if (loop_work()) return;
  const std::lock_guard lock(counting_);
  ++(counts_.*moved).times;
  (counts_.*moved).bytes += bytes;
}

void CudaDevice::count_wait() {
  const std::lock_guard lock(counting_);
  ++counts_.waits;
}

void CudaDevice::guard_waits(std::shared_ptr<const WaitGuard> guard) {
  const std::lock_guard lock(counting_);
  guard_.swap(guard);
}

std::shared_ptr<const WaitGuard> CudaDevice::wait_guard() const {
  const std::lock_guard lock(counting_);
  return guard_;
}

namespace cuda {

int begin_launch(const Context& ctx, const char* op) {
  const LoopWork* loop = loop_work();
  LMX_CHECK(!loop || !loop->stream || loop->stream == ctx.stream, op,
            " in a loop that is replayed uses another context than the loop's: its work would be done once");
  CudaDevice& device = cuda_device(ctx.device);
  LMX_CHECK(device.stream() == ctx.stream || loop, op,
            " uses the context of a thread that enqueues on another stream (use_stream_of_thread())");
  device.count_launch(op);
  return loop && loop->stream ? 0 : device.capability();
}

void launch_failed(const Context& ctx, const char* op, const char* error) {
  // If the device has failed, a fence says so in the words of every other failed call. While a loop is captured, which
  // allows no fence, the code that captures asks.
  if (!loop_work()) cuda_device(ctx.device).fence()->wait();
  throw RunError(str("[", op, "] launch failed: ", error));
}

}  // namespace cuda
}  // namespace lmx
