#include "lmx/kernels.h"

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "backend/gemm_kernel.h"
#include "lmx/error.h"

namespace lmx {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::tuple<std::string, Device::Kind, DType>, AnyKernel, std::less<>> kernels;
};

// The kernels that the process can use; part of the registry. Filled once, then only read.
Table& table() {
  static Table instance;
  return instance;
}

void add_core_kernels() {
  static std::once_flag once;
  std::call_once(once, add_cpu_gemm);
}

}  // namespace

void add_kernel(std::string_view op, Device::Kind device, DType type, AnyKernel kernel) {
  const std::lock_guard lock(table().mutex);
  table().kernels[{std::string(op), device, type}] = kernel;
}

AnyKernel find_kernel(std::string_view op, Device::Kind device, DType type) {
  add_core_kernels();
  const std::lock_guard lock(table().mutex);
  const auto it = table().kernels.find(std::tuple(std::string(op), device, type));
  return it == table().kernels.end() ? nullptr : it->second;
}

void missing_kernel(std::string_view op, Device device, DType type) {
  throw UserError(str("[", op, "] no ", device.kind == Device::Kind::cpu ? "CPU" : "CUDA", " kernel for ",
                      name_of(type), " in this build (input on ", name_of(device), ")"));
}

}  // namespace lmx
