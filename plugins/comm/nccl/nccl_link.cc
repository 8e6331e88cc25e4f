#include "nccl_link.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
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

namespace {

using lmx::MemClass;
using lmx::Tensor;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPoll = 100ms;      // between two questions of the watching thread for an error
constexpr auto kSpin = 50us;       // after which a wait for NCCL sleeps between two questions
constexpr auto kNap = 50us;        // and for how long
constexpr auto kLongestCall = 1s;  // after which a call of NCCL counts as hanging, if another rank has failed

lmx::Liveness& liveness_of(lmx::Communicator& host) {
  auto* const liveness = dynamic_cast<lmx::Liveness*>(&host);
  LMX_CHECK(liveness, "the communicator of the host does not know whether the other ranks live");
  return *liveness;
}

// Rank 0's id for the connection, on all ranks.
ncclUniqueId shared_id(const Library& nccl, lmx::Communicator& host, const std::function<void(ncclResult_t)>& check) {
  ncclUniqueId id{};
  if (host.rank() == 0) check(nccl.GetUniqueId(&id));
  const std::span bytes(reinterpret_cast<const uint8_t*>(&id), sizeof id);
  const Tensor own = Tensor::from<uint8_t>(host.allocator(), {int64_t{sizeof id}}, bytes, MemClass::communication);
  const Tensor shared = host.broadcast(own, 0, "");
  std::memcpy(&id, shared.raw(), sizeof id);
  return id;
}

}  // namespace

NcclLink::NcclLink(const Library& nccl, lmx::Device device, lmx::Communicator& host, double start_s)
    : nccl_(nccl), host_(host), liveness_(liveness_of(host)), stream_(device) {
  try {
    start(start_s);
  } catch (...) {
    abort();
    throw;
  }
  watcher_ = std::thread([this] { watch(); });
  stream_.guard_waits([this] { return liveness_.waiting_for_device(); }, [this] { require_working(); });
  liveness_.on_failure(this, [this] {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    changed_.notify_all();
  });
}

NcclLink::~NcclLink() {
  stream_.guard_waits(nullptr, nullptr);
  liveness_.on_failure(this, nullptr);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  abort();
}

// All ranks return from NCCL's call before they wait for the connection. So the liveness check names a rank that hangs
// in the call, because the others wait for it in a collective of the host. Afterwards every rank has its own time
// limit.
void NcclLink::start(double start_s) {
  const ncclUniqueId id = shared_id(nccl_, host_, [&](ncclResult_t r) { check(r, "ncclGetUniqueId"); });
  static_cast<void>(stream_.stream());  // the thread's CUDA calls, and so NCCL's, concern the device from now on
  ncclConfig_t config{sizeof config, kNcclConfigMagic, kNcclConfigVersion, 0};
  ncclComm_t comm = nullptr;
  const ncclResult_t called = nccl_.CommInitRankConfig(&comm, host_.size(), id, host_.rank(), &config);
  comm_ = comm;
  check(called, "ncclCommInitRankConfig");
  host_.barrier();
  const auto begin = Clock::now();
  ncclResult_t now = ncclInProgress;
  while ((now = state()) == ncclInProgress) {
    liveness_.end_if_another_failed();
    if (start_s > 0 && Clock::now() - begin > std::chrono::duration<double>(start_s))
      throw lmx::RunError(str("[nccl] NCCL has not connected the ", host_.size(), " ranks within ", start_s,
                              " s (comm.lag_s); NCCL_DEBUG=INFO prints what it tries, and NCCL_SOCKET_IFNAME=eth0 "
                              "chooses the network interface"));
    std::this_thread::sleep_for(1ms);
  }
  check(now, "ncclCommInitRankConfig");
  host_.barrier();
}

ncclResult_t NcclLink::state() {
  const std::lock_guard lock(calls_);
  ncclResult_t now = ncclSuccess;
  const ncclComm_t comm = comm_;
  if (!comm) return ncclSuccess;  // aborted, which require_working() reports
  const ncclResult_t asked = nccl_.CommGetAsyncError(comm, &now);
  return asked == ncclSuccess ? now : asked;
}

void NcclLink::fail(ncclResult_t result, const std::string& call) const {
  const std::string last = broken_ == ncclSuccess ? nccl_.GetLastError(comm_) : why_;
  const std::string text = str(call, " failed (", what_, "): ", nccl_.GetErrorString(result),
                               last.empty() ? "" : str(", ", last), "; NCCL_DEBUG=INFO prints more");
  if (result == ncclRemoteError) liveness_.lost_connection(str("[nccl] ", text));
  throw lmx::RunError(str("[nccl] ", text));
}

void NcclLink::check(ncclResult_t result, const std::string& call) {
  if (result != ncclSuccess && result != ncclInProgress) fail(result, call);
}

void NcclLink::require_working() const {
  if (broken_ != ncclSuccess) fail(broken_, "an exchange");
  if (!comm_) liveness_.lost_connection("[nccl] the connection was ended because another rank has failed");
}

void NcclLink::run(const char* what, const std::function<void()>& enqueue) {
  require_working();
  what_ = what;
  stream_.begin();
  ncclResult_t ended = ncclSuccess;
  {
    const std::lock_guard lock(calls_);
    if (comm_) {
      check(nccl_.GroupStart(), "ncclGroupStart");
      enqueue();
      ended = nccl_.GroupEnd();
    }
  }
  check(ended, "ncclGroupEnd");
  if (ended == ncclInProgress) settle();
  require_working();
  stream_.end();
}

// NCCL connects two ranks when they first exchange data, and for that waits for both. While it does, the liveness check
// treats this rank as waiting.
void NcclLink::settle() {
  const auto begin = Clock::now();
  std::shared_ptr<void> waiting;
  ncclResult_t now = ncclInProgress;
  while ((now = state()) == ncclInProgress) {
    if (Clock::now() - begin < kSpin) continue;
    if (!waiting) waiting = liveness_.waiting_for_device();
    liveness_.end_if_another_failed();
    std::this_thread::sleep_for(kNap);
  }
  check(now, "ncclGroupEnd");
}

void NcclLink::send(const Tensor& t, int to) {
  if (t.bytes() == 0) return;
  check(nccl_.Send(t.raw(), static_cast<size_t>(t.bytes()), ncclUint8, to, comm_, stream()), "ncclSend");
}

void NcclLink::receive(Tensor& t, int from) {
  if (t.bytes() == 0) return;
  check(nccl_.Recv(t.raw(), static_cast<size_t>(t.bytes()), ncclUint8, from, comm_, stream()), "ncclRecv");
}

void NcclLink::broadcast(const Tensor& from, Tensor& to, int root) {
  if (from.bytes() == 0) return;
  const auto bytes = static_cast<size_t>(from.bytes());
  check(nccl_.Broadcast(from.raw(), to.raw(), bytes, ncclUint8, root, comm_, stream()), "ncclBroadcast");
}

void NcclLink::all_gather(const Tensor& own, Tensor& all) {
  if (own.bytes() == 0) return;
  const auto bytes = static_cast<size_t>(own.bytes());
  check(nccl_.AllGather(own.raw(), all.raw(), bytes, ncclUint8, comm_, stream()), "ncclAllGather");
}

void NcclLink::all_reduce(const Tensor& own, Tensor& sum) {
  if (own.bytes() == 0) return;
  const ncclDataType_t type = own.dtype() == lmx::DType::f64 ? ncclFloat64 : ncclFloat32;
  const auto count = static_cast<size_t>(own.numel());
  check(nccl_.AllReduce(own.raw(), sum.raw(), count, type, ncclSum, comm_, stream()), "ncclAllReduce");
}

void NcclLink::finish() {
  require_working();
  stream_.wait();
  what_ = "the end";
  ncclResult_t called = ncclSuccess;
  {
    const std::lock_guard lock(calls_);
    called = nccl_.CommFinalize(comm_);
  }
  check(called, "ncclCommFinalize");
  if (called == ncclInProgress) settle();
  const std::lock_guard lock(calls_);
  check(nccl_.CommDestroy(comm_.exchange(nullptr)), "ncclCommDestroy");
}

// Ends the connection if another rank has failed, or NCCL reports an error. All its operations end then, so the thread
// that waits for the device continues, and finds the failure at its next exchange.
void NcclLink::watch() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPoll, [&] { return ended_ || interrupted_; });
      if (ended_) return;
      if (interrupted_) break;
    }
    const ncclResult_t now = state();
    if (now == ncclSuccess || now == ncclInProgress) continue;
    why_ = nccl_.GetLastError(comm_);
    broken_ = now;
    break;
  }
  abort();
}

void NcclLink::abort() {
  const std::unique_lock lock(calls_, kLongestCall);
  if (const ncclComm_t comm = comm_.exchange(nullptr)) nccl_.CommAbort(comm);
}

}  // namespace lmx_nccl
