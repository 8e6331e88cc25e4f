#include "lmx/kernels.h"

#include <boost/core/demangle.hpp>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backend/kernel_table.h"
#include "lmx/error.h"

namespace lmx {
namespace {

// Kernels by the name of their arguments' type, because each library may have a separate type_info for the same type.
struct Table {
  std::mutex mutex;
  std::map<std::pair<std::string, Device::Kind>, AnyKernel> kernels;
};

// The kernels that the process can use; part of the registry. Filled when libraries are loaded, then only read.
Table& table() {
  static Table instance;
  return instance;
}

}  // namespace

void add_kernel(const std::type_info& args, Device::Kind device, AnyKernel kernel) {
  const std::lock_guard lock(table().mutex);
  table().kernels[{args.name(), device}] = kernel;
}

AnyKernel find_kernel(const std::type_info& args, const char* op, DType type, Device device) {
  const std::lock_guard lock(table().mutex);
  const auto it = table().kernels.find({args.name(), device.kind});
  if (it != table().kernels.end()) return it->second;
  throw UserError(str("[", op, "] no ", device.kind == Device::Kind::cpu ? "CPU" : "CUDA", " kernel for ",
                      name_of(type), " in this build (input on ", name_of(device), ")"));
}

std::set<std::string> kernel_names(Device::Kind device) {
  const std::lock_guard lock(table().mutex);
  std::set<std::string> names;
  for (const auto& [key, kernel] : table().kernels)
    if (key.second == device) names.insert(boost::core::demangle(key.first.c_str()));
  return names;
}

}  // namespace lmx
