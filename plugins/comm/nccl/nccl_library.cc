#include "nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "lmx/error.h"

namespace lmx_nccl {
namespace {

using lmx::str;
using lmx::UserError;

constexpr int kOldest = 21400;  // has ncclCommInitRankConfig()

// A library that takes the place of NCCL, such as the emulated one of the tests.
std::string path_of_library() {
  const char* given = std::getenv("LMX_NCCL_LIBRARY");
  return given && *given ? given : "libnccl.so.2";
}

[[noreturn]] void fail(const std::string& what) {
  throw UserError(str("[nccl] comm.name=nccl: ", what,
                      "; install NCCL 2.14 or newer for CUDA 13 (package libnccl2 of NVIDIA's repository; without "
                      "root: pip install nvidia-nccl-cu13), and add its folder to LD_LIBRARY_PATH or give its path in "
                      "LMX_NCCL_LIBRARY; comm.name=gloo and mpi do without NCCL"));
}

template <class Function>
void find(void* handle, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (!function) fail(str(path, " has no function ", name));
}

Library load() {
  const std::string path = path_of_library();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail(str(path, " cannot be loaded (", dlerror(), ")"));
  Library l{};
  find(handle, path, "ncclGetVersion", l.GetVersion);
  if (l.GetVersion(&l.version) != ncclSuccess || l.version < kOldest)
    fail(str(path, " is NCCL ", version_text(l.version)));
  find(handle, path, "ncclGetUniqueId", l.GetUniqueId);
  find(handle, path, "ncclGetErrorString", l.GetErrorString);
  find(handle, path, "ncclGetLastError", l.GetLastError);
  find(handle, path, "ncclCommInitRankConfig", l.CommInitRankConfig);
  find(handle, path, "ncclCommGetAsyncError", l.CommGetAsyncError);
  find(handle, path, "ncclCommFinalize", l.CommFinalize);
  find(handle, path, "ncclCommDestroy", l.CommDestroy);
  find(handle, path, "ncclCommAbort", l.CommAbort);
  find(handle, path, "ncclGroupStart", l.GroupStart);
  find(handle, path, "ncclGroupEnd", l.GroupEnd);
  find(handle, path, "ncclSend", l.Send);
  find(handle, path, "ncclRecv", l.Recv);
  find(handle, path, "ncclBroadcast", l.Broadcast);
  find(handle, path, "ncclAllGather", l.AllGather);
  find(handle, path, "ncclAllReduce", l.AllReduce);
  return l;
}

}  // namespace

const Library& library() {
  static std::mutex mutex;
  static Library loaded{};
  const std::lock_guard lock(mutex);
  if (!loaded.version) loaded = load();
  return loaded;
}

// NCCL counted 2.8.4 as 2804 before it counted 2.9.6 as 20906.
std::string version_text(int version) {
  const int major = version < 10000 ? 1000 : 10000;
  return str(version / major, ".", version % major / 100, ".", version % 100);
}

}  // namespace lmx_nccl
