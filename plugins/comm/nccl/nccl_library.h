// NCCL, loaded at run time.
#pragma once

#include <string>

#include "nccl_api.h"

namespace lmx_nccl {

// NCCL's functions, by their names without "nccl".
struct Library {
  decltype(&ncclGetVersion) GetVersion;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclCommFinalize) CommFinalize;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclAllGather) AllGather;
  decltype(&ncclAllReduce) AllReduce;
  int version = 0;  // as NCCL counts: 22809 is 2.28.9
};

// Loads libnccl.so.2, or the library in the environment variable LMX_NCCL_LIBRARY, once; it stays loaded. UserError,
// the same at every call: it cannot be loaded, or is too old.
const Library& library();

std::string version_text(int version);  // "2.28.9"

}  // namespace lmx_nccl
