// One rank of the jobs that process_jobs.h starts: `process_rank SCENARIO CONFIG [RANK]`. CONFIG is the `comm:` section
// of a recipe; RANK is the faulty rank. Exits with the same codes as the command lmx. It always ends within five
// minutes, later than the limits of job.h together.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "app/run/agreement.h"
#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "lmx/random.h"
#include "moves.h"
#include "recipe/comm_config.h"
#include "sync/server/server_link.h"

namespace lmx_test {
namespace {

using lmx::Communicator;
using lmx::str;
using lmx::UserError;

volatile std::sig_atomic_t g_signal = 0;
int g_exit_code = 0;

extern "C" void note(int signal) {
  g_signal = signal;
}

void nap(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Prints that this rank has started, in one write.
void ready(Communicator& comm) {
  comm.barrier();
  const std::string line = str("rank ", comm.rank(), " pid ", getpid(), "\n");
  static_cast<void>(!write(STDOUT_FILENO, line.data(), line.size()));
  comm.barrier();
}

// The same operations with tensors in the memory of a device.
void on_device(Communicator& comm, void (*body)(Communicator&)) {
  moves_on(comm, "cuda");
  body(comm);
}

// The same between devices, where rank 0 prints: the time includes the work of the devices. Run by tools/gpu multi.
void device_traffic(Communicator& comm, int megabytes) {
  moves_on(comm, "cuda");
  if (megabytes <= 0) megabytes = 16;
  constexpr int kTimes = 20;
  lmx::Tensor t = moves_context().zeros({int64_t{megabytes} * 250'000});
  const auto measure = [&](const char* what, auto&& body) {
    body();
    static_cast<void>(here(t.slice(0, 1)));
    comm.clear_ledger();
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) body();
    static_cast<void>(here(t.slice(0, 1)));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    int64_t sent = 0;
    for (const lmx::LedgerEntry& line : comm.ledger()) sent += line.sent;
    if (comm.rank() == 0)
      std::printf("%-10s %6d MB  %10.6f s  %8.2f GB/s sent by a rank\n", what, megabytes, spent.count() / kTimes,
                  static_cast<double>(sent) * 1e-9 / spent.count());
  };
  measure("all_reduce", [&] { static_cast<void>(comm.all_reduce(t, "test")); });
  const lmx::RankRows rows = lmx::RankRows::same(comm.size(), t.dim(0));
  measure("all_gather", [&] { static_cast<void>(comm.all_gather(t, rows, "test")); });
  measure("broadcast", [&] { static_cast<void>(comm.broadcast(t, 0, "test")); });
}

// Takes steps with exchanges between devices, until the job ends.
void device_loop(Communicator& comm, int) {
  moves_on(comm, "cuda");
  ready(comm);
  for (;;) check_all_reduce<float>(comm, 100'000);
}

// One rank is on the CPU.
void devices_differ(Communicator& comm, int who) {
  moves_on(comm, comm.rank() == who ? "cpu" : "cuda");
}

// One rank waits for the device, because another one has not entered an exchange.
void device_one_lags(Communicator& comm, int who) {
  moves_on(comm, "cuda");
  ready(comm);
  if (comm.rank() == who) nap(50'000);
  check_all_reduce<float>(comm, 1000);
}

void large(Communicator& comm) {
  check_all_reduce<float>(comm, 10'000'000);
  check_all_reduce<double>(comm, 1'000'003);
}

// From now on the kernel answers this system call with an error in this process and its children, as the rules of a
// container may do. `option`: only if this is the third argument of the call; -1: always.
void refuse(long call, unsigned error, int option = -1) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 3),
                          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(option), 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  if (option < 0) filter[3] = BPF_STMT(BPF_MISC | BPF_TAX, 0);  // compares nothing
  const sock_fprog program{std::size(filter), filter};
  require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a filter of system calls");
}

// The kernel refuses to read the memory of other processes with the error LMX_TEST_READ_ERROR, from now on and in rank
// `who` alone (-1: in all). Before, the ranks have found that they can read.
void refuse_reads(Communicator& comm, int who) {
  if (who >= 0 && comm.rank() != who) return;
  const auto error = static_cast<unsigned>(std::atoi(std::getenv("LMX_TEST_READ_ERROR")));
  refuse(SYS_process_vm_readv, error);
  char from = 0, to = 0;
  const iovec remote{&from, 1}, local{&to, 1};
  errno = 0;
  require(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0 && errno == static_cast<int>(error), "no refusal");
}

void refused_moves(Communicator& comm, int who) {
  refuse_reads(comm, who);
  check_long_moves(comm);
}

// Gathers 8 MB of each rank again and again, until the job ends.
void long_loop(Communicator& comm, int) {
  ready(comm);
  for (;;) check_all_gather(comm, std::vector<int64_t>(static_cast<size_t>(comm.size()), 700'000), true);
}

// More than 2^31 bytes in one message. Not part of the suite, since it needs 5 GB per rank.
void huge(Communicator& comm) {
  const int64_t n = int64_t{2200} << 20;
  lmx::Tensor t = lmx::Tensor::zeros(comm.allocator(), {n}, lmx::DType::u8);
  if (comm.rank() == 0)
    for (int64_t i = 0; i < n; i += 4096) t.data<uint8_t>()[i] = static_cast<uint8_t>(i / 4096 % 251);
  const lmx::Tensor got = comm.broadcast(t, 0, "test");
  for (int64_t i = 0; i < n; i += 4096)
    require(got.data<uint8_t>()[i] == static_cast<uint8_t>(i / 4096 % 251), str("byte ", i));
}

// Twenty all-reduces of `megabytes` (16 by default): time of one, and the bytes that this rank sent, to compare them
// with the counter of a network interface. Not part of the suite: run it by hand, over a real or an emulated network.
void traffic(Communicator& comm, int megabytes) {
  if (megabytes <= 0) megabytes = 16;
  const lmx::Tensor t = lmx::Tensor::zeros(comm.allocator(), {int64_t{megabytes} * 250'000}, lmx::DType::f32);
  comm.all_reduce(t, "test");
  comm.clear_ledger();
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) comm.all_reduce(t, "test");
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  int64_t sent = 0;
  for (const lmx::LedgerEntry& line : comm.ledger()) sent += line.sent;
  std::printf("rank %d: %.4f s for an all_reduce of %d MB, %lld bytes sent\n", comm.rank(), spent.count() / 20,
              megabytes, static_cast<long long>(sent));
}

// Time of an all_gather in which each rank sends `bytes`. Also run by hand.
void short_traffic(Communicator& comm, int bytes) {
  const int times = std::clamp(200'000'000 / std::max(bytes, 1), 100, 20'000);
  const lmx::Tensor own = lmx::Tensor::zeros(comm.allocator(), {int64_t{bytes}}, lmx::DType::u8);
  const lmx::RankRows rows = lmx::RankRows::same(comm.size(), bytes);
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) comm.all_gather(own, rows, "test");
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (comm.rank() == 0)
    std::printf("%.3f us for an all_gather of %d bytes of each rank\n", spent.count() / times * 1e6, bytes);
}

// Rank 1 sends `sent` bytes to rank 0, which expects LMX_TEST_EXPECTED bytes.
void gathered_lengths_differ(Communicator& comm, int sent) {
  ready(comm);
  const int64_t own = comm.rank() == 1 ? sent : 8;
  const int64_t expected = std::atoi(std::getenv("LMX_TEST_EXPECTED"));
  comm.all_gather(lmx::Tensor::zeros(comm.allocator(), {own}, lmx::DType::u8),
                  std::vector<int64_t>{8, comm.rank() == 1 ? sent : expected}, "test");
  comm.barrier();
}

// The same outside of collectives, after a message of the right length.
void message_lengths_differ(Communicator& comm, int sent) {
  ready(comm);
  const int64_t expected = std::atoi(std::getenv("LMX_TEST_EXPECTED"));
  const std::unique_ptr<lmx::Connection> own = std::move(comm.connections(1).front());
  for (const int64_t length : {int64_t{8}, comm.rank() == 1 ? int64_t{sent} : expected}) {
    lmx::Tensor t = lmx::Tensor::zeros(comm.allocator(), {length}, lmx::DType::u8);
    if (comm.rank() == 1) own->send(t, 0, 3);
    if (comm.rank() == 0) own->receive(t, 1, 3);
  }
  comm.barrier();
}

// Takes a step at intervals, until the job ends.
void loop(Communicator& comm, int) {
  ready(comm);
  for (;;) {
    comm.barrier();
    nap(5);
  }
}

void one_throws(Communicator& comm, int who) {
  ready(comm);
  if (comm.rank() == who) throw UserError("this rank has had enough");
  for (;;) comm.barrier();
}

void all_throw(Communicator& comm, int) {
  ready(comm);
  throw UserError("the same everywhere");
}

// One rank throws the error long before the others.
void throw_apart(Communicator& comm, int who) {
  ready(comm);
  if (comm.rank() != who) nap(1400);
  throw UserError("the same everywhere");
}

void one_lags(Communicator& comm, int who) {
  ready(comm);
  if (comm.rank() == who) nap(50'000);
  comm.barrier();
}

// One rank computes for half a second. It sleeps fifty times for a short time, because a single sleep would end while
// the process is stopped.
void one_computes(Communicator& comm, int who) {
  ready(comm);
  for (int i = 0; comm.rank() == who && i < 50; ++i) nap(10);
  comm.barrier();
}

// Asynchronous workers of a server: one does not return from its second step, and the others continue until the next
// meeting.
void one_worker_sleeps(Communicator& comm, int who) {
  using lmx::server::Event;
  const auto eight_bytes = [&] { return lmx::Tensor::zeros(comm.allocator(), {8}, lmx::DType::u8); };
  lmx::server::Link link(comm);
  link.add("rest", 1, [&](int, const lmx::server::Request& request) {
    return request.kind == Event::pull ? eight_bytes() : lmx::Tensor();
  });
  const auto everywhere = [&](Event kind) {
    for (int shard = 0; shard < comm.size(); ++shard)
      link.send(0, shard, {.kind = kind, .extents = {1}, .body = kind == Event::push ? eight_bytes() : lmx::Tensor()});
  };
  link.start(std::vector<lmx::server::Stand>(static_cast<size_t>(comm.size())), {}, 4);
  ready(comm);
  for (int step = 0; link.ask(step < 4 ? Event::pull : Event::none, 4, false); ++step) {
    everywhere(Event::pull);
    for (int shard = 0; shard < comm.size(); ++shard) link.receive(0, shard, 8);
    if (comm.rank() == who && step == 1) nap(50'000);
    link.ask(Event::push, 4, false);
    everywhere(Event::push);
  }
}

// A collective that takes many times `lag_s`, although bytes arrive all the time. Not part of the suite, since its time
// depends on the machine: run it by hand, over a slow link (OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_sndbuf=16384 makes
// loopback slow).
void slow_gather(Communicator& comm, int mebibytes) {
  const auto start = std::chrono::steady_clock::now();
  const lmx::Tensor own = lmx::Tensor::zeros(comm.allocator(), {int64_t{mebibytes} << 20}, lmx::DType::u8);
  ready(comm);
  comm.all_gather(own, std::vector<int64_t>(static_cast<size_t>(comm.size()), own.dim(0)), "test");
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (comm.rank() == 0) std::printf("gathered in %.2f s\n", spent.count());
}

void one_differs(Communicator& comm, int who) {
  ready(comm);
  const lmx::Tensor t = lmx::Tensor::zeros(comm.allocator(), {4}, lmx::DType::f32);
  if (comm.rank() == who) {
    comm.all_gather(t, "test");
  } else {
    comm.barrier();
  }
}

void all_receive(Communicator& comm, int) {
  ready(comm);
  lmx::Tensor t = lmx::Tensor::zeros(comm.allocator(), {4}, lmx::DType::f32);
  comm.connections(1).front()->receive(t, (comm.rank() + 1) % comm.size(), 3);
}

void disagree(Communicator& comm, int who) {
  const char* lr = comm.rank() == who ? "0.1" : "0.2";
  lmx::app::check_equal_everywhere(comm, {{"recipe", str("optimizer: {name: sgd, lr: ", lr, "}\n")}});
}

// Waits until any rank has received a signal. All ranks then exit with the code that a shell expects.
void until_signal(Communicator& comm, int) {
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
  ready(comm);
  for (double worst = 0; worst == 0;) {
    const double own = g_signal;
    for (const double s : comm.gather_numbers(std::span(&own, 1), "control")) worst = std::max(worst, s);
    g_exit_code = worst > 0 ? 128 + static_cast<int>(worst) : 0;
    nap(5);
  }
}

void ends_early(Communicator& comm, int who) {
  if (comm.rank() == who) nap(1500);  // longer than lag_s: at the end a rank may be late
}

const std::map<std::string, std::function<void(Communicator&, int)>> kScenarios{
    {"moves", [](Communicator& comm, int) { check_moves(comm); }},
    {"long_moves", [](Communicator& comm, int) { check_long_moves(comm); }},
    {"refused_moves", refused_moves},
    {"long_loop", long_loop},
    {"native", [](Communicator& comm, int) { check_native(comm); }},
    {"large", [](Communicator& comm, int) { large(comm); }},
    {"device_moves", [](Communicator& comm, int) { on_device(comm, check_moves); }},
    {"device_native", [](Communicator& comm, int) { on_device(comm, check_native); }},
    {"device_large", [](Communicator& comm, int) { on_device(comm, large); }},
    {"device_loop", device_loop},
    {"device_traffic", device_traffic},
    {"device_one_lags", device_one_lags},
    {"devices_differ", devices_differ},
    {"huge", [](Communicator& comm, int) { huge(comm); }},
    {"traffic", traffic},
    {"short_traffic", short_traffic},
    {"gathered_lengths_differ", gathered_lengths_differ},
    {"message_lengths_differ", message_lengths_differ},
    {"loop", loop},
    {"one_throws", one_throws},
    {"all_throw", all_throw},
    {"throw_apart", throw_apart},
    {"one_lags", one_lags},
    {"one_computes", one_computes},
    {"one_worker_sleeps", one_worker_sleeps},
    {"slow_gather", slow_gather},
    {"one_differs", one_differs},
    {"all_receive", all_receive},
    {"disagree", disagree},
    {"until_signal", until_signal},
    {"ends_early", ends_early},
    {"stays", [](Communicator& comm, int) { ready(comm); }},
};

void run(const std::string& scenario, const std::string& config, int who) {
  // A test of what happens if a rank is lost before the ranks have met.
  if (std::getenv("LMX_TEST_KILL_AT_START") && lmx::detect_launch().launcher != lmx::Launcher::none &&
      lmx::detect_launch().rank == 1)
    raise(SIGKILL);
  if (const char* code = std::getenv("LMX_TEST_EXIT_AT_START");
      code && lmx::detect_launch().launcher != lmx::Launcher::none && lmx::detect_launch().rank == 1)
    _exit(std::atoi(code));
  if (const char* error = std::getenv("LMX_TEST_FILTER_ERROR"))
    refuse(SYS_setsockopt, static_cast<unsigned>(std::atoi(error)), SO_ATTACH_FILTER);
  lmx::Registry& registry = lmx::Registry::instance();
  registry.add_default_directories();
  const lmx::Node node = lmx::parse_yaml(config, "test");
  const int threads = scenario == "large" ? 3 : 1;  // of a rank; no machine or variable of the tests says 3
  const auto group = lmx::make_comm_group(node, "comm", {threads, {}});
  group->run([&](Communicator& comm) {
    require(comm.size() == group->size(), "size");
    require(lmx::num_threads() == threads && comm.threads() == threads, "threads");
    kScenarios.at(scenario)(comm, who);
  });
  const int rank = lmx::detect_launch().rank;
  if (rank == 0) std::printf("done: %s\n", group->describe().c_str());
  if (scenario == "stays" && rank == who) raise(SIGSTOP);  // it stays in the job, which the others want to leave
}

int say(const std::string& text, int code) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  return code;
}

}  // namespace
}  // namespace lmx_test

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(300);
  if (argc < 3) return 64;
  try {
    lmx_test::run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : -1);
  } catch (const lmx::EndProcess& e) {
    return e.said ? e.code : lmx_test::say(e.what(), e.code);
  } catch (const lmx::UserError& e) {
    return lmx_test::say(lmx::error_prefix() + e.what(), 2);
  } catch (const std::exception& e) {
    return lmx_test::say(lmx::error_prefix() + e.what(), 1);
  }
  return lmx_test::g_exit_code;
}
