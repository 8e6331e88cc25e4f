// The interface between the core and liblmx_cuda.so. The library is loaded if it is located beside the core and a CUDA
// device is available.
#pragma once

#include <memory>

#include "lmx/api.h"
#include "lmx/tensor.h"

namespace lmx {

// Loads liblmx_cuda.so once, which adds its kernels to the kernel table. Returns the number of available devices: 0
// without the library, without a driver, or without a device (the reason is logged at debug level).
int load_cuda();

// A device's memory. UserError if that device is not available.
std::shared_ptr<Allocator> cuda_allocator(int index);

// A copy of `t` in another device's memory (host to device, device to host, or on the host). Returns when it is
// complete.
Tensor copy_to(const Tensor& t, const std::shared_ptr<Allocator>& allocator);

// Loads a plugin's CUDA kernels (NAME_cuda.so beside it) if a device is available.
void load_plugin_cuda(const std::string& plugin_path);

// The table that liblmx_cuda.so exports as `lmx_cuda_api`. A reader may access only the first `size` bytes.
struct CudaApi {
  uint32_t size;
  int devices;
  const char* reason;  // why no device is available
  const char* suffix;  // of the libraries with plugins' kernels: "_cuda.so"
  std::shared_ptr<Allocator> (*allocator)(int index);
  void (*copy)(void* to, const void* from, size_t bytes);  // any direction; returns when the copy is complete
};

}  // namespace lmx
