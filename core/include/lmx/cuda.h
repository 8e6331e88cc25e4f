// The seam to CUDA: what the core knows of liblmx_cuda.so, which is loaded when it lies beside the core and a device
// answers.
#pragma once

#include <memory>

#include "lmx/api.h"
#include "lmx/memory.h"
#include "lmx/tensor.h"

namespace lmx {

// Loads liblmx_cuda.so once and adds its kernels to the kernel table. Returns the number of devices that answer: 0
// without the library, without a driver, or without a device (the reason is logged at debug level).
LMX_API int load_cuda();

// A device's memory. UserError when that device does not answer.
LMX_API std::shared_ptr<Allocator> cuda_allocator(int index);

// A copy of `t` in another device's memory (host to device, device to host, or on the host). Waits until it is there.
LMX_API Tensor copy_to(const Tensor& t, const std::shared_ptr<Allocator>& allocator);

// Loads the CUDA kernels beside a plugin (NAME_cuda.so, which exports lmx_plugin_cuda) when a device answers.
LMX_API void load_plugin_cuda(const std::string& plugin_path);

// What liblmx_cuda.so exports as `lmx_cuda_api`. `size` guards what a reader may look at.
struct CudaApi {
  uint32_t size;
  int devices;
  const char* reason;  // why there are none
  std::shared_ptr<Allocator> (*allocator)(int index);
  void (*copy)(void* to, const void* from, size_t bytes);  // any direction; waits
  void (*add_kernels)();
};

}  // namespace lmx
