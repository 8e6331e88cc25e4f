#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "backend/cuda.h"
#include "backend/cudnn.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx {
namespace {

using CudnnApiFunction = const CudnnApi* (*)();

constexpr const char* kOtherwise = "; without LMX_CUDNN=1, lmx's own kernels compute instead";

struct LoadedCudnn {
  const CudnnApi* api = nullptr;
  std::string reason, remedy;  // if it is null
};

// liblmx_cudnn.so beside liblmx_cuda.so, and liblmx_cudnn_emulated.so beside liblmx_cuda_emulated.so. The library stays
// loaded, since the kernel table contains its kernels.
LoadedCudnn open_cudnn() {
  std::filesystem::path path = cuda_library_path();
  std::string name = path.filename();
  if (const size_t at = name.find("cuda"); at != std::string::npos) name.replace(at, 4, "cudnn");
  path.replace_filename(name);
  if (!std::filesystem::exists(path))
    return {nullptr, str("this build of lmx has no ", name), "install cuDNN 9 for CUDA 13 and build lmx again"};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return {nullptr, str(name, " cannot be loaded: ", dlerror()),
            "install cuDNN 9 for CUDA 13, or add its folder to LD_LIBRARY_PATH"};
  const auto function = reinterpret_cast<CudnnApiFunction>(dlsym(handle, "lmx_cudnn_api"));
  const CudnnApi* api = function ? function() : nullptr;
  if (!api || api->size < sizeof(CudnnApi))
    throw UserError(str("[cudnn] ", path.string(), ": is of another build than this lmx (", kVersion, "); rebuild it"));
  log_debug(str("[cudnn] ", path.string(), ", cuDNN ", cudnn_version_text(api->version)));
  return {api, "", ""};
}

const LoadedCudnn& loaded_cudnn() {
  static std::once_flag once;
  static LoadedCudnn found;
  std::call_once(once, [] { found = open_cudnn(); });
  return found;
}

}  // namespace

CudnnUse cudnn_use() {
  const char* given = std::getenv("LMX_CUDNN");
  const std::string_view text = given ? given : "";
  if (text.empty() || text == "auto") return CudnnUse::if_present;
  if (text == "0") return CudnnUse::never;
  if (text == "1") return CudnnUse::required;
  throw UserError(str("[cudnn] LMX_CUDNN=", text, ": must be auto, 0 or 1"));
}

const CudnnApi* load_cudnn() {
  return loaded_cudnn().api;
}

const std::string& cudnn_unavailable() {
  return loaded_cudnn().reason;
}

std::string cudnn_version_text(int64_t version) {
  return str(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

void check_required_cudnn() {
  if (cudnn_use() == CudnnUse::required && !load_cudnn())
    throw UserError(str("[cudnn] LMX_CUDNN=1: ", cudnn_unavailable(), "; ", loaded_cudnn().remedy, kOtherwise));
}

bool cudnn_computes(const Context& ctx, const SdpaShape& shape) {
  if (ctx.device.counts) return false;  // cuDNN can only be asked about a device that is there
  const CudnnUse use = cudnn_use();
  if (use == CudnnUse::never) return false;
  check_required_cudnn();
  const CudnnApi* api = load_cudnn();
  const std::string reason = api ? api->sdpa_refusal(ctx, shape) : cudnn_unavailable();
  if (reason.empty()) return true;
  if (use == CudnnUse::required)
    throw UserError(str("[cudnn] LMX_CUDNN=1: cuDNN ", cudnn_version_text(api->version),
                        " does not compute attention of ", shape.keys, " keys and heads of ", shape.size, " in ",
                        name_of(shape.type), " on ", name_of(ctx.device), ": ", reason, kOtherwise));
  static std::atomic<bool> logged = false;
  if (!logged.exchange(true)) log_info(str("[cudnn] lmx's own kernels compute long attention: ", reason));
  return false;
}

std::string cudnn_version_of_run(Device device, const std::string& precision) {
  if (device.kind == Device::Kind::cpu || precision == "fp32" || cudnn_use() == CudnnUse::never) return {};
  return load_cudnn() ? cudnn_version_text(load_cudnn()->version) : "";
}

}  // namespace lmx
