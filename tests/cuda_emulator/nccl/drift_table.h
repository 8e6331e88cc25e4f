// The names of NCCL that the plugin nccl declares, with their values, sizes and parameters. The file that includes this
// one has included either the plugin's header or NVIDIA's.
#pragma once

#include <cstddef>

#include "../drift_text.h"

namespace nccl_drift {

using cuda_drift::Parameters;
using cuda_drift::Table;

namespace {  // a table for each file

#if defined(NCCL_CONFIG_INITIALIZER)
unsigned int config_magic() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config.magic;
}
#else
unsigned int config_magic() {
  return kNcclConfigMagic;
}
#endif

// clang-format off
#define LMX_VALUE(name) value(#name, name);
#define LMX_FUNCTION(name) t[#name] = Parameters<decltype(&name)>::text();
[[maybe_unused]] Table table() {
  Table t;
  const auto value = [&](const char* name, auto v) { t[name] = std::to_string(static_cast<long long>(v)); };
  LMX_VALUE(ncclSuccess) LMX_VALUE(ncclUnhandledCudaError) LMX_VALUE(ncclSystemError) LMX_VALUE(ncclInternalError)
  LMX_VALUE(ncclInvalidArgument) LMX_VALUE(ncclInvalidUsage) LMX_VALUE(ncclRemoteError) LMX_VALUE(ncclInProgress)
  LMX_VALUE(ncclSum) LMX_VALUE(ncclUint8) LMX_VALUE(ncclFloat32) LMX_VALUE(ncclFloat64)
  LMX_FUNCTION(ncclGetVersion) LMX_FUNCTION(ncclGetUniqueId) LMX_FUNCTION(ncclGetErrorString)
  LMX_FUNCTION(ncclGetLastError) LMX_FUNCTION(ncclCommInitRankConfig) LMX_FUNCTION(ncclCommGetAsyncError)
  LMX_FUNCTION(ncclCommFinalize) LMX_FUNCTION(ncclCommDestroy) LMX_FUNCTION(ncclCommAbort)
  LMX_FUNCTION(ncclGroupStart) LMX_FUNCTION(ncclGroupEnd) LMX_FUNCTION(ncclSend) LMX_FUNCTION(ncclRecv)
  LMX_FUNCTION(ncclBroadcast) LMX_FUNCTION(ncclAllGather) LMX_FUNCTION(ncclAllReduce)
#undef LMX_FUNCTION
#undef LMX_VALUE
      // clang-format on
      value("sizeof ncclUniqueId", sizeof(ncclUniqueId));
  value("magic of ncclConfig_t", config_magic());
  value("offset of size", offsetof(ncclConfig_t, size));
  value("offset of magic", offsetof(ncclConfig_t, magic));
  value("offset of version", offsetof(ncclConfig_t, version));
  value("offset of blocking", offsetof(ncclConfig_t, blocking));
  return t;
}

}  // namespace
}  // namespace nccl_drift
