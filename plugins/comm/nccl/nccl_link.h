// One rank's connection to the others by NCCL: its start, its operations, and its end, also after a failure. The
// library, which is loaded at run time, and the config.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lmx/comm.h"
#include "lmx/device_comm.h"
#include "nccl_api.h"
#include "processes/process_config.h"

namespace lmx_nccl {

// NCCL, loaded at run time.

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

// Operations run on the exchange stream of the device, after all work that the calling thread has enqueued before, and
// before what it enqueues next. No call waits for the device. Used by one thread at a time.
class NcclLink {
 public:
  // Collective. `start_s`: after this time the start counts as failed; 0: never. RunError, EndProcess.
  NcclLink(const Library& nccl, lmx::Device device, lmx::Communicator& host, double start_s);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // The operations that `enqueue` enqueues are one group, which `what` names in errors. RunError; EndProcess if another
  // rank has failed.
  void run(const char* what, const std::function<void()>& enqueue);
  // Operations for run(). The data are bytes.
  void send(const lmx::Tensor& t, int to);
  void receive(lmx::Tensor& t, int from);
  void broadcast(const lmx::Tensor& from, lmx::Tensor& to, int root);
  void all_gather(const lmx::Tensor& own, lmx::Tensor& all);  // parts of equal size
  void all_reduce(const lmx::Tensor& own, lmx::Tensor& sum);  // f32 or f64

  // Throws if the connection has failed since the last call.
  void require_working() const;
  // Ends the connection when all operations are done. Collective.
  void finish();

 private:
  void start(double start_s);
  void settle();
  void check(ncclResult_t result, const std::string& call);
  [[noreturn]] void fail(ncclResult_t result, const std::string& call) const;
  ncclResult_t state();
  void watch();
  void abort();
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.stream()); }

  const Library& nccl_;
  lmx::Communicator& host_;
  lmx::Liveness& liveness_;
  lmx::ExchangeStream stream_;
  // A call of NCCL does not block. If one hangs nevertheless, the watching thread takes the connection without the
  // lock.
  std::timed_mutex calls_;
  std::atomic<ncclComm_t> comm_{nullptr};
  const char* what_ = "the start";

  std::mutex mutex_;  // of the following three
  std::condition_variable changed_;
  bool ended_ = false, interrupted_ = false;
  std::atomic<ncclResult_t> broken_{ncclSuccess};  // what the watching thread has found
  std::string why_;                                // NCCL's last error then; written before `broken_`
  std::thread watcher_;
};

// comm: {name: nccl, ...}

struct NcclConfig : lmx::processes::ProcessConfig {
  std::string host = "auto";
  std::string interface;
  int64_t port = 0;
  bool direct = true;
  void fields(lmx::Fields& f) {
    f.choice(
        "host", host, {"auto", "mpi", "gloo"},
        "group that starts the ranks, finds lost ones and carries what is in the memory of the host; auto: by what "
        "started this process, gloo for torchrun and for lmx itself, mpi for mpirun and srun (for srun gloo, if "
        "MASTER_ADDR is set)");
    ProcessConfig::fields(f);
    f.field("interface", interface, "see comm.name=gloo; only with that host");
    f.field("port", port, "see comm.name=gloo; only with that host", {0, 65535});
    f.field("direct", direct, "see comm.name=gloo; only with that host");
  }
};

}  // namespace lmx_nccl
