// The emulated NCCL: every misuse is reported, and its declarations are NVIDIA's.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "include/cuda_runtime_api.h"
#include "nccl/nccl_api.h"

#include "drift_table.h"

namespace nccl_drift {

Table nvidia();

TEST(NcclDrift, ThePluginDeclaresWhatNvidiaDoes) {
#if LMX_NCCL_HEADERS
  const Table theirs = nvidia();
  for (const auto& [name, text] : table()) EXPECT_EQ(text, theirs.at(name)) << name;
#else
  GTEST_SKIP() << "the build found no nccl.h";
#endif
}

}  // namespace nccl_drift

namespace nccl_emulator {
namespace {

using testing::HasSubstr;

// One of two ranks, in a separate process.
struct Rank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *own = nullptr, *other = nullptr;  // of the device, 64 values each
  int number = 0;
  int peer() const { return 1 - number; }

  ncclResult_t state() const {
    ncclResult_t now = ncclInProgress;
    while (ncclCommGetAsyncError(comm, &now) == ncclSuccess && now == ncclInProgress) usleep(100);
    return now;
  }
  void start(const ncclUniqueId& id) {
    cudaSetDevice(number);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(reinterpret_cast<void**>(&own), 64 * sizeof(float));
    cudaMalloc(reinterpret_cast<void**>(&other), 64 * sizeof(float));
    ncclConfig_t config{sizeof config, kNcclConfigMagic, kNcclConfigVersion, 0};
    ncclCommInitRankConfig(&comm, 2, id, number, &config);
    if (state() != ncclSuccess) std::_Exit(90);
  }
};

struct Ended {
  int code = 0;  // 128 + signal
  std::string err;
};

// Runs `body` as ranks 0 and 1; its result is the exit code. An operation waits `wait_s` seconds for the other rank.
std::vector<Ended> run_two(const std::function<int(Rank&)>& body, const char* wait_s = "120") {
  setenv("LMX_EMULATED_DEVICES", "2", 1);
  setenv("LMX_EMULATED_NCCL_WAIT", wait_s, 1);
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::pair<pid_t, int>> ranks;
  for (int number : {0, 1}) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(ends[1], STDERR_FILENO);
      alarm(100);
      Rank rank;
      rank.number = number;
      rank.start(id);
      std::_Exit(body(rank));
    }
    close(ends[1]);
    ranks.emplace_back(pid, ends[0]);
  }
  // In the order in which they end, because an ended process exists until its parent has waited for it.
  std::map<pid_t, int> statuses;
  for (int status = 0; statuses.size() < 2;)
    if (const pid_t pid = wait(&status); pid > 0) statuses[pid] = status;
  std::vector<Ended> all;
  for (const auto& [pid, out] : ranks) {
    const int status = statuses.at(pid);
    Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ""};
    char text[256];
    for (ssize_t n = 0; (n = read(out, text, sizeof text)) > 0;) ended.err.append(text, static_cast<size_t>(n));
    close(out);
    all.push_back(ended);
  }
  return all;
}

// The same for ranks that wait for each other in vain.
std::vector<Ended> run_in_vain(const std::function<int(Rank&)>& body) {
  return run_two(body, "1");
}

void expect_fault(const std::vector<Ended>& ranks, size_t which, const std::string& text) {
  EXPECT_EQ(ranks[which].code, 128 + SIGABRT);
  EXPECT_THAT(ranks[which].err, HasSubstr(text));
}

TEST(NcclEmulator, MessagesOfAGroupPassEachOther) {
  const auto ranks = run_two([](Rank& r) {
    const std::vector<float> values(64, static_cast<float>(r.number + 1));
    cudaMemcpyAsync(r.own, values.data(), 64 * sizeof(float), cudaMemcpyHostToDevice, r.stream);
    ncclGroupStart();
    ncclSend(r.own, 64, ncclFloat32, r.peer(), r.comm, r.stream);
    ncclRecv(r.other, 64, ncclFloat32, r.peer(), r.comm, r.stream);
    if (ncclGroupEnd() != ncclInProgress || r.state() != ncclSuccess) return 1;
    std::vector<float> got(64);
    cudaMemcpyAsync(got.data(), r.other, 64 * sizeof(float), cudaMemcpyDeviceToHost, r.stream);
    cudaStreamSynchronize(r.stream);
    return got == std::vector<float>(64, static_cast<float>(r.peer() + 1)) ? 0 : 2;
  });
  for (const Ended& rank : ranks) EXPECT_EQ(rank.code, 0) << rank.err;
}

// A rank whose host does not wait takes part nevertheless, as a device does.
TEST(NcclEmulator, ARankNeedNotWaitForTheOtherToProceed) {
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  const auto ranks = run_two([&](Rank& r) {
    cudaMemsetAsync(r.own, 0, 64 * sizeof(float), r.stream);
    ncclAllReduce(r.own, r.other, 64, ncclFloat32, ncclSum, r.comm, r.stream);
    char byte = 0;
    if (r.number == 1) return read(done[0], &byte, 1) == 1 ? 0 : 1;
    cudaStreamSynchronize(r.stream);
    return write(done[1], &byte, 1) == 1 ? 0 : 1;
  });
  for (const int end : done) close(end);
  for (const Ended& rank : ranks) EXPECT_EQ(rank.code, 0) << rank.err;
}

TEST(NcclEmulator, CountsThatDiffer) {
  const auto ranks = run_in_vain([](Rank& r) {
    if (r.number == 0) ncclSend(r.own, 10, ncclFloat32, 1, r.comm, r.stream);
    if (r.number == 1) ncclRecv(r.other, 12, ncclFloat32, 0, r.comm, r.stream);
    cudaStreamSynchronize(r.stream);
    return 0;
  });
  expect_fault(ranks, 1,
               "rank 1 receives a message of 12 values of type 7 from rank 0, which sends a message of 10 values");
}

TEST(NcclEmulator, TypesAndCollectivesThatDiffer) {
  const auto types = run_in_vain([](Rank& r) {
    ncclAllReduce(r.own, r.other, 8, r.number ? ncclFloat32 : ncclFloat64, ncclSum, r.comm, r.stream);
    cudaStreamSynchronize(r.stream);
    return 0;
  });
  EXPECT_TRUE(types[0].code == 128 + SIGABRT || types[1].code == 128 + SIGABRT);
  EXPECT_THAT(types[0].err + types[1].err, HasSubstr("all_reduce number 0 of 8 values of type 8"));
  const auto kinds = run_in_vain([](Rank& r) {
    if (r.number == 0) ncclBroadcast(r.own, r.other, 8, ncclFloat32, 0, r.comm, r.stream);
    if (r.number == 1) ncclAllReduce(r.own, r.other, 8, ncclFloat32, ncclSum, r.comm, r.stream);
    cudaStreamSynchronize(r.stream);
    return 0;
  });
  expect_fault(kinds, 1,
               "rank 1 receives a all_reduce number 0 of 8 values of type 7 from rank 0, which sends a broadcast");
}

TEST(NcclEmulator, AMessageThatNobodyReceives) {
  const auto ranks = run_in_vain([](Rank& r) {
    if (r.number == 1) return 0;
    ncclSend(r.own, 10, ncclFloat32, 1, r.comm, r.stream);
    cudaStreamSynchronize(r.stream);
    return 0;
  });
  expect_fault(ranks, 0, "rank 0 sends a message of 10 values of type 7 to rank 1, which has not taken part for 1 s");
}

// Outside of a group, both ranks first send and wait for each other.
TEST(NcclEmulator, MessagesWithoutAGroup) {
  const auto ranks = run_in_vain([](Rank& r) {
    ncclSend(r.own, 8, ncclFloat32, r.peer(), r.comm, r.stream);
    (void)r.state();
    ncclRecv(r.other, 8, ncclFloat32, r.peer(), r.comm, r.stream);
    cudaStreamSynchronize(r.stream);
    return 0;
  });
  EXPECT_THAT(ranks[0].err + ranks[1].err, HasSubstr("which has not taken part for 1 s"));
}

TEST(NcclEmulator, CallsThatAreRefused) {
  const auto ranks = run_two([](Rank& r) {
    float on_host = 0;
    if (ncclGroupEnd() != ncclInvalidUsage) return 1;
    if (ncclSend(&on_host, 1, ncclFloat32, r.peer(), r.comm, r.stream) != ncclInvalidArgument) return 2;
    if (ncclSend(r.own, 1, ncclFloat32, 2, r.comm, r.stream) != ncclInvalidArgument) return 3;
    cudaSetDevice(r.peer());
    cudaStream_t elsewhere = nullptr;
    cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking);
    if (ncclSend(r.own, 1, ncclFloat32, r.peer(), r.comm, elsewhere) != ncclInvalidArgument) return 4;
    ncclAllReduce(r.own, r.other, 8, ncclFloat32, ncclSum, r.comm, r.stream);
    if (ncclAllReduce(r.own, r.other, 8, ncclFloat32, ncclSum, r.comm, r.stream) != ncclInvalidUsage) return 5;
    cudaStreamSynchronize(r.stream);
    return 0;
  });
  for (const Ended& rank : ranks) EXPECT_EQ(rank.code, 0) << rank.err;
}

// The operation that waits for a rank ends when another thread gives it up; otherwise the rank ends by its alarm.
TEST(NcclEmulator, AnAbortEndsAWait) {
  const auto ranks = run_two([](Rank& r) {
    if (r.number == 1) return 0;
    ncclRecv(r.other, 8, ncclFloat32, 1, r.comm, r.stream);
    std::thread aborts([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ncclCommAbort(r.comm);
    });
    cudaStreamSynchronize(r.stream);
    aborts.join();
    return 0;
  });
  EXPECT_EQ(ranks[0].code, 0) << ranks[0].err;
}

TEST(NcclEmulator, ARankThatHasEndedIsAnError) {
  const auto ranks = run_two([](Rank& r) {
    if (r.number == 1) return 0;
    for (int i = 0; i < 3000; ++i) {
      if (r.state() == ncclRemoteError) return 0;
      usleep(20'000);
    }
    return 1;
  });
  EXPECT_EQ(ranks[0].code, 0) << ranks[0].err;
}

}  // namespace
}  // namespace nccl_emulator
