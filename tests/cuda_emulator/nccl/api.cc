// The functions of NCCL over the emulated device.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "comm.h"
#include "fault.h"
#include "include/cuda_runtime_api.h"
#include "memory.h"

struct ncclComm {
  std::shared_ptr<nccl_emulator::Comm> comm;
  bool blocking = true;
};

namespace {

using namespace nccl_emulator;
using cuda_emulator::device_mutex;

// LMX_EMULATED_NCCL_ERROR, an error that a test wants: "WHAT:RANK" or "WHAT:RANK:N" (docs/development.md).
struct Wanted {
  std::string what;
  int rank = -1, number = 1;
};

const Wanted& wanted() {
  static const auto& error = *new Wanted([] {
    const char* given = std::getenv("LMX_EMULATED_NCCL_ERROR");
    const std::string text = given ? given : "";
    Wanted w;
    const size_t first = text.find(':'), second = first == std::string::npos ? first : text.find(':', first + 1);
    w.what = text.substr(0, first);
    if (first != std::string::npos) w.rank = std::atoi(text.c_str() + first + 1);
    if (second != std::string::npos) w.number = std::atoi(text.c_str() + second + 1);
    return w;
  }());
  return error;
}

bool wants(const char* what, int rank) {
  return wanted().what == what && wanted().rank == rank;
}

struct Entry {
  ncclComm_t handle;
  cudaStream_t stream;
  Op op;
};
// The group of the calling thread.
struct Group {
  int depth = 0;
  std::vector<Entry> entries;
};
thread_local Group group;

ncclResult_t refuse(ncclComm_t handle, ncclResult_t result, const std::string& text) {
  handle->comm->last_error = text;
  return result;
}

// Enqueues what a group has collected for one communicator.
ncclResult_t enqueue_for(ncclComm_t handle, const std::vector<Entry>& entries) {
  const std::lock_guard lock(device_mutex());
  const std::shared_ptr<Comm>& comm = handle->comm;
  cudaStream_t stream = nullptr;
  std::vector<Op> ops;
  for (const Entry& e : entries) {
    if (e.handle != handle) continue;
    if (!ops.empty() && e.stream != stream)
      return refuse(handle, ncclInvalidUsage, "a group uses several streams, which lmx never wants");
    stream = e.stream;
    ops.push_back(e.op);
  }
  comm->enqueue(stream, std::move(ops));
  comm->unasked = !handle->blocking;
  return handle->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t end_group() {
  const std::vector<Entry> entries = std::exchange(group.entries, {});
  ncclResult_t result = ncclSuccess;
  std::map<ncclComm_t, bool> done;
  for (const Entry& e : entries) {
    if (std::exchange(done[e.handle], true)) continue;
    const ncclResult_t own = enqueue_for(e.handle, entries);
    if (result == ncclSuccess || own != ncclInProgress) result = own;
  }
  return result;
}

bool memory_fits(const Op& op, int ranks) {
  const size_t out = op.bytes(), in = op.kind == Kind::all_gather ? out * static_cast<size_t>(ranks) : out;
  if ((op.from && !cuda_emulator::on_device(op.from)) || (op.to && !cuda_emulator::on_device(op.to))) return false;
  if (op.from) cuda_emulator::check_range("an operation of NCCL", op.from, out);
  if (op.to) cuda_emulator::check_range("an operation of NCCL", op.to, in);
  return true;
}

// An operation outside of a group is a group.
ncclResult_t add(const char* function, const Op& op, ncclComm_t handle, cudaStream_t stream) {
  if (!handle) return ncclInvalidArgument;
  Comm& comm = *handle->comm;
  if (comm.error != ncclSuccess) return comm.error;
  if (comm.unasked) return refuse(handle, ncclInvalidUsage, "the previous call is still in progress");
  if (op.peer < 0 || op.peer >= comm.ranks()) return refuse(handle, ncclInvalidArgument, "no such rank");
  ++comm.calls;
  if (wants(function, comm.rank()) && comm.calls >= wanted().number)
    return refuse(handle, ncclInternalError, "an emulated error");
  if (wants("async", comm.rank()) && comm.calls >= wanted().number)
    comm.fail(ncclSystemError, "an emulated error of the network");
  if (wants("kill", comm.rank()) && comm.calls >= wanted().number) raise(SIGKILL);
  {
    const std::lock_guard lock(device_mutex());
    const auto used = cuda_emulator::stream_of(stream);
    if (used->device != comm.device()) return refuse(handle, ncclInvalidArgument, "a stream of another device");
    if (used->capture) return refuse(handle, ncclInvalidUsage, "lmx captures no exchange");
    if (!memory_fits(op, comm.ranks())) return refuse(handle, ncclInvalidArgument, "no memory of the device");
  }
  group.entries.push_back({handle, stream, op});
  return group.depth > 0 ? ncclSuccess : end_group();
}

void obey_in_init(int rank) {
  if (wants("kill_in_init", rank)) raise(SIGKILL);
  while (wants("hang_in_init", rank)) sleep(1);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = wanted().what == "old_version" ? 21306 : 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return make_segment(*id) ? ncclSuccess : ncclSystemError;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return static_cast<size_t>(result) < std::size(kTexts) ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t handle) {
  return handle ? handle->comm->last_error.c_str() : "";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (config->size != sizeof *config || config->magic != kNcclConfigMagic || config->version != kNcclConfigVersion)
    return ncclInvalidArgument;
  obey_in_init(rank);
  std::shared_ptr<Segment> segment = open_segment(id);
  if (!segment) return ncclSystemError;
  int device = 0;
  cudaGetDevice(&device);
  *handle = new ncclComm{std::make_shared<Comm>(std::move(segment), rank, ranks, device), config->blocking != 0};
  if (!wants("never_joins", rank)) (*handle)->comm->join();
  while ((*handle)->blocking && (*handle)->comm->joined() == ncclInProgress) usleep(1000);
  return (*handle)->blocking ? (*handle)->comm->joined() : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  if (!handle) return ncclInvalidArgument;
  Comm& comm = *handle->comm;
  *error = comm.error != ncclSuccess      ? comm.error.load()
           : comm.unasked.exchange(false) ? ncclInProgress
                                          : comm.joined();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (!handle) return ncclInvalidArgument;
  if (handle->comm->queued() > 0) cuda_emulator::fault("NCCL: a communicator ends whose operations have not run");
  handle->comm->unasked = !handle->blocking;
  return handle->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (!handle) return ncclInvalidArgument;
  handle->comm->end();
  delete handle;
  return ncclSuccess;
}

// Operations that run or have not run yet end without a result.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (!handle) return ncclInvalidArgument;
  handle->comm->aborted = true;
  handle->comm->end();
  static auto& kept = *new std::vector<ncclComm_t>;  // queued operations use it
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  kept.push_back(handle);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  return --group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclSend", {Kind::message, from, nullptr, count, type, to}, comm, stream);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclRecv", {Kind::message, nullptr, to, count, type, from}, comm, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return add("ncclBroadcast", {Kind::broadcast, from, to, count, type, root}, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add("ncclAllGather", {Kind::all_gather, from, to, count, type}, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return add("ncclAllReduce", {Kind::all_reduce, from, to, count, type}, comm, stream);
}

}  // extern "C"
