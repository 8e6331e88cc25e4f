// Reads from the memory of another process. The two ranks are threads of this process, except where a child process
// acts as a rank.
#include "peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "loopback.h"

namespace lmx_gloo {
namespace {

using Process = PeerMemory::Process;
using Result = PeerMemory::Result;

// Two ranks. `change`: what is changed in the published data of rank 1.
class Pair {
 public:
  explicit Pair(std::array<bool, 2> use = {true, true}, std::function<void(Process&)> change = {})
      : change_(std::move(change)) {
    std::array<std::thread, 2> threads;
    for (size_t rank = 0; rank < 2; ++rank)
      threads[rank] = std::thread([this, use, rank] { make(static_cast<int>(rank), use[rank]); });
    for (std::thread& thread : threads) thread.join();
  }
  const PeerMemory& operator[](int rank) const { return *ranks_[static_cast<size_t>(rank)]; }

 private:
  void make(int rank, bool use) {
    ranks_[static_cast<size_t>(rank)] = std::make_unique<PeerMemory>(rank, 2, use, [&](auto own, auto all) {
      std::vector<std::byte>& mine = rows_[static_cast<size_t>(rank)];
      mine.assign(own.begin(), own.end());
      if (rank == 1 && change_ && own.size() == sizeof(Process)) change_(*reinterpret_cast<Process*>(mine.data()));
      meet_.arrive_and_wait();
      for (size_t r = 0; r < 2; ++r) std::memcpy(all.data() + r * own.size(), rows_[r].data(), own.size());
      meet_.arrive_and_wait();
    });
  }

  std::function<void(Process&)> change_;
  std::barrier<> meet_{2};
  std::array<std::vector<std::byte>, 2> rows_;
  std::array<std::unique_ptr<PeerMemory>, 2> ranks_;
};

uint64_t address_of(const void* memory) {
  return reinterpret_cast<uint64_t>(memory);
}

// `reads`: of rank 0 from rank 1 and the other way round.
void expect_pair(const Pair& pair, bool reads_1, bool reads_0) {
  EXPECT_EQ(pair[0].reads(1), reads_1);
  EXPECT_EQ(pair[1].is_read_by(0), reads_1);
  EXPECT_EQ(pair[1].reads(0), reads_0);
  EXPECT_EQ(pair[0].is_read_by(1), reads_0);
  for (const int r : {0, 1}) EXPECT_FALSE(pair[r].reads(r) || pair[r].is_read_by(r));
}

TEST(PeerMemory, RanksOfOneHostReadEachOther) {
  const Pair pair;
  expect_pair(pair, true, true);
  const std::vector<int> there{1, 2, 3, 4};
  std::vector<int> here(3);
  EXPECT_EQ(pair[0].read(1, address_of(&there[1]), here.data(), 3 * sizeof(int)), Result::done);
  EXPECT_EQ(here, (std::vector<int>{2, 3, 4}));
}

TEST(PeerMemory, MemoryThatCannotBeReadIsRefused) {
  const Pair pair;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* two = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(two) + page, page, PROT_NONE), 0);
  std::vector<char> here(2 * page);
  EXPECT_EQ(pair[0].read(1, address_of(two), here.data(), page), Result::done);
  EXPECT_EQ(pair[0].read(1, address_of(two), here.data(), page + 1), Result::refused);
  EXPECT_EQ(pair[0].read(1, address_of(two) + page, here.data(), page), Result::refused);
  munmap(two, 2 * page);
}

// A rank whose comm.direct is false takes part in the exchange nevertheless.
TEST(PeerMemory, ARankThatDoesNotUseIt) {
  expect_pair(Pair({true, false}), false, false);
  expect_pair(Pair({false, true}), false, false);
}

// Only ranks of the same kernel and namespaces are tried: elsewhere the number of a process means another one, and data
// must not bypass the emulated network between emulated hosts.
TEST(PeerMemory, RanksElsewhere) {
  expect_pair(Pair({true, true}, [](Process& p) { p.boot[0] = 'x'; }), false, false);
  expect_pair(Pair({true, true}, [](Process& p) { ++p.pid_space; }), false, false);
  expect_pair(Pair({true, true}, [](Process& p) { ++p.network_space; }), false, false);
  expect_pair(Pair({true, true}, [](Process& p) { p.cookie_at = 8; }), false, true);
}

TEST(PeerMemory, AnotherProcessUnderTheSameNumber) {
  expect_pair(Pair({true, true}, [](Process& p) { ++p.cookie; }), false, true);
}

// The process of rank 1, in which `own` runs, and which then waits until it is killed.
pid_t start_process(const std::function<void()>& own) {
  std::array<int, 2> ready{};
  EXPECT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    own();
    static_cast<void>(!write(ready[1], "x", 1));
    for (;;) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

TEST(PeerMemory, AProcessThatHasEnded) {
  if (!lmx_test::reads_allowed()) GTEST_SKIP() << "a process may not read the memory of its child here";
  int value = 5, here = 0;
  pid_t child = -1;
  const Pair pair({true, true}, [&](Process& p) { p.pid = child = start_process([&] { value = 6; }); });
  expect_pair(pair, true, true);
  EXPECT_EQ(pair[0].read(1, address_of(&value), &here, sizeof here), Result::done);
  EXPECT_EQ(here, 6);
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(pair[0].read(1, address_of(&value), &here, sizeof here), Result::gone);  // a zombie
  waitpid(child, nullptr, 0);
  EXPECT_EQ(pair[0].read(1, address_of(&value), &here, sizeof here), Result::gone);
}

// The number of a rank that has ended belongs to another process, which has other data at the address of the cookie.
TEST(PeerMemory, AProcessThatHasEndedAndIsReplaced) {
  if (!lmx_test::reads_allowed()) GTEST_SKIP() << "a process may not read the memory of its child here";
  pid_t child = -1;
  int value = 5, here = 0;
  const Pair pair({true, true}, [&](Process& p) {
    p.pid = child = start_process([&] {
      static volatile uint64_t* cookie = nullptr;
      cookie = reinterpret_cast<volatile uint64_t*>(p.cookie_at);
      std::signal(SIGUSR1, [](int) { *cookie = *cookie + 1; });
    });
  });
  EXPECT_EQ(pair[0].read(1, address_of(&value), &here, sizeof here), Result::done);
  kill(child, SIGUSR1);
  Result result = Result::done;
  for (int tries = 0; result == Result::done && tries < 6000; ++tries) {
    usleep(10'000);
    result = pair[0].read(1, address_of(&value), &here, sizeof here);
  }
  EXPECT_EQ(result, Result::gone);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lmx_gloo
