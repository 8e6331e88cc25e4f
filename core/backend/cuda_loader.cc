#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "backend/cuda.h"
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

// Otherwise liblmx_cuda.so in the folder of the library that contains this code.
std::string library_path() {
  if (given_path()) return given_path();
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&load_cuda), &info) || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path() / "liblmx_cuda.so";
}

// Null if the library or a device is missing. The library stays loaded, since the kernel table contains its kernels.
const CudaApi* open_api() {
  const std::string path = library_path();
  if (given_path() && !std::filesystem::exists(path)) throw UserError(str("[cuda] LMX_CUDA_LIBRARY: no file ", path));
  if (path.empty() || !std::filesystem::exists(path)) {
    log_debug("[cuda] no liblmx_cuda.so beside the core: running on the CPU");
    return nullptr;
  }
  // Without a driver there is no device; this check avoids mapping cuBLASLt's half gigabyte.
  if (!given_path() && !dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    log_debug("[cuda] no driver (libcuda.so.1): running on the CPU");
    return nullptr;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    log_warn(str("[cuda] ", path, " cannot be loaded, running on the CPU: ", dlerror()));
    return nullptr;
  }
  const auto function = reinterpret_cast<ApiFunction>(dlsym(handle, "lmx_cuda_api"));
  const CudaApi* api = function ? function() : nullptr;
  if (!api || api->size < sizeof(CudaApi)) {
    throw UserError(str("[cuda] ", path, ": is of another build than this lmx (", kVersion, "); rebuild it"));
  }
  if (api->devices == 0) {
    log_debug(str("[cuda] no device answers, running on the CPU: ", api->reason));
    return nullptr;
  }
  return api;
}

const CudaApi* api() {
  static std::once_flag once;
  static const CudaApi* loaded = nullptr;
  std::call_once(once, [] { loaded = open_api(); });
  return loaded;
}

}  // namespace

int load_cuda() {
  return api() ? api()->devices : 0;
}

CudaDevice::~CudaDevice() = default;

CudaDevice& cuda_device(int index) {
  const int devices = load_cuda();
  if (index < 0 || index >= devices) throw UserError(str("[cuda] no device cuda:", index, "; ", devices, " answer"));
  return api()->device(index);
}

void compute_on(Context& ctx, Device device) {
  ctx.device = device;
  if (device.kind == Device::Kind::cpu) return;
  CudaDevice& cuda = cuda_device(device.index);
  ctx.allocator = Allocator::counting(cuda.memory());
  ctx.host = Allocator::counting(cuda.pinned());
  ctx.stream = cuda.stream();
}

Tensor copy_to(const Tensor& t, const std::shared_ptr<Allocator>& allocator) {
  Tensor out = Tensor::empty(allocator, t.shape(), t.dtype(), t.mem_class());
  if (t.numel() == 0) return out;
  copy_values(out, t);
  if (out.device().kind == Device::Kind::cuda) cuda_device(out.device().index).fence()->wait();
  return out;
}

void copy_values(Tensor& to, const Tensor& from) {
  if (to.device() == from.device()) return to.copy_from(from);
  LMX_CHECK(to.dtype() == from.dtype() && to.shape() == from.shape(), "copy of ", describe(from), " into ",
            describe(to));
  if (to.numel() == 0) return;
  CudaDevice& device = cuda_device(from.device().kind == Device::Kind::cuda ? from.device().index : to.device().index);
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

}  // namespace lmx
