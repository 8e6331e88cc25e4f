// N ranks as threads of one process. Collectives exchange data in memory: tensors are passed by reference, and gathered
// data exists once. Both are counted in the memory of every rank that would store them.
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <ranges>
#include <system_error>
#include <thread>

#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "rank_scheduler.h"

namespace lmx::virtual_ranks {
namespace {

struct VirtualConfig {
  int64_t ranks = 2;
  int64_t at_once = 0, ranks_per_node = 0;
  void fields(Fields& f) {
    f.field("ranks", ranks, "ranks of the run", {1, 65536});
    f.field("at_once", at_once, "ranks that compute at the same time; 0: as many as the machine has cores for",
            kNonNegative);
    f.field("ranks_per_node", ranks_per_node,
            "consecutive ranks that count as one node, for sync levels and for the bytes between nodes; 0: all ranks",
            kNonNegative);
  }
  Traits traits() const { return {{trait::kOneProcess, "true"}}; }
};

// "8192 processes and threads of this user (ulimit -u), 500 of this container (pids.max)".
std::string thread_limits() {
  std::vector<std::string> limits;
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limits.push_back(str(limit.rlim_cur, " processes and threads of this user (ulimit -u)"));
  for (const char* path : {"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"}) {
    std::string most;
    if (std::ifstream(path) >> most && most != "max") limits.push_back(str(most, " of this container (", path, ")"));
  }
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limits.push_back(str(limit.rlim_cur >> 20, " MiB of addresses, each thread's stack included (ulimit -v)"));
  if (limits.empty()) return "give fewer ranks";
  std::string text = "limits here are ";
  for (size_t i = 0; i < limits.size(); ++i) text += (i ? ", " : "") + limits[i];
  return text + "; raise one or give fewer ranks";
}

// The input of one rank to a collective: one tensor, even if its rows go to thousands of ranks.
struct Handed {
  Tensor own;
  RankRows to = RankRows::same(0, 0);  // all_to_all: rows of `own` for each rank
  std::vector<int64_t> begins = {};    // a copy of the sums of a list in `to`, which the rank may free first

  static Handed for_all(const Tensor& own, const RankRows& to) {
    return {own, to, to.is_list() ? to.begins() : std::vector<int64_t>()};
  }
  Tensor for_rank(int r) const {
    const auto i = static_cast<size_t>(r);
    return begins.empty() ? own.slice(to.begin(r), to.begin(r + 1)) : own.slice(begins[i], begins[i + 1]);
  }
};

// A collective in progress; each rank keeps it until it has its result.
struct Round {
  const char* what = nullptr;
  int first = 0;  // first rank that joined it
  int arrived = 0;
  bool complete = false;
  std::vector<Handed> in;  // by rank
  Tensor out;
  std::shared_ptr<void> made;
};

// State that the ranks of a group share. Guarded by the mutex of `scheduler`.
struct Hall {
  Hall(int n, int slots, std::shared_ptr<const RankNodes> nodes_of_ranks)
      : ranks(n),
        nodes(std::move(nodes_of_ranks)),
        scheduler(n, slots),
        clock(static_cast<size_t>(n), 0.0),
        away(static_cast<size_t>(n), 0) {}

  int ranks;
  std::shared_ptr<const RankNodes> nodes;
  RankScheduler scheduler;
  std::shared_ptr<Allocator> pool = Allocator::cpu();
  std::shared_ptr<Round> round;
  std::vector<double> clock;  // time of each rank's next event, simulated
  bool cancelled = false;     // not every rank got a thread
  std::vector<uint8_t> away;  // ranks that wait in a collective or have ended: their clocks do not count

  // The rank with the first event in simulated time; at equal times the lowest rank. -1: none.
  int next() const {
    int first = -1;
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<size_t>(r);
      if (!away[i] && (first < 0 || clock[i] < clock[static_cast<size_t>(first)])) first = r;
    }
    return first;
  }
  void set_clock(int rank, double time) {
    clock[static_cast<size_t>(rank)] = time;
    wake_next();
  }
  void leave_clock(int rank) {
    away[static_cast<size_t>(rank)] = 1;
    wake_next();
  }

 private:
  void wake_next() {
    if (const int r = next(); r >= 0) scheduler.wake(r);
  }
};

class VirtualCommunicator final : public Communicator, private TurnClock {
 public:
  VirtualCommunicator(Hall& hall, int rank, int threads, int all_threads)
      : Communicator(Allocator::counting(hall.pool), threads), hall_(hall), rank_(rank), all_threads_(all_threads) {
    set_nodes(hall.nodes);
  }
  int rank() const override { return rank_; }
  int size() const override { return hall_.ranks; }
  bool shares_memory() const override { return true; }
  TurnClock* turns() override { return this; }

  void announce(double time) override {
    const std::lock_guard lock(hall_.scheduler.mutex());
    hall_.set_clock(rank_, time);
  }
  void wait() override {
    std::unique_lock lock(hall_.scheduler.mutex());
    hall_.scheduler.wait(rank_, lock, "wait_turn", [&] { return hall_.next() == rank_; });
  }

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override {
    const auto round = meet("all_gather", {own}, [&](Round& r) {
      // In a buffer that no rank's memory counts; each rank's memory is charged for it separately.
      r.out = join(r, std::views::iota(0, size()), rows.total(), Allocator::counting(allocator(own.device())));
    });
    return round->out.lent(allocator(own.device()), MemClass::communication);
  }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows& to, const RankRows&) override {
    const auto round = meet("all_to_all", Handed::for_all(own, to), {});
    std::vector<Tensor> got;
    for (size_t r = 0; r < round->in.size(); ++r) {
      const Tensor part = round->in[r].for_rank(rank_);
      got.push_back(r == index() ? part : part.lent(allocator(own.device()), MemClass::communication));
    }
    return got;
  }
  Tensor do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows) override {
    const auto round = meet("gather_among", {own}, {});
    return join(*round, members, rows.total(), allocator(own.device()));
  }
  Tensor do_broadcast(const Tensor& t, int root) override {
    const auto round = meet("broadcast", {t}, {});
    return rank_ == root ? t : round->in[static_cast<size_t>(root)].own.lent(allocator(t.device()), t.mem_class());
  }
  void do_barrier() override { meet("barrier", {}, {}); }

  std::shared_ptr<void> do_once(const std::function<std::shared_ptr<void>()>& make) override {
    if (rank_ != 0) return meet("once", {}, {})->made;
    std::unique_lock lock(hall_.scheduler.mutex());
    const std::shared_ptr<Round> round = join_round("once", {});
    hall_.leave_clock(rank_);
    hall_.scheduler.wait(rank_, lock, "once", [&] { return round->arrived == hall_.ranks; });
    lock.unlock();
    set_num_threads(all_threads_);  // the other ranks wait
    round->made = make();
    set_num_threads(threads());
    lock.lock();
    complete(*round);
    return round->made;
  }

 private:
  size_t index() const { return static_cast<size_t>(rank_); }

  // Joins the collective in progress, or starts one. The caller must hold the mutex.
  std::shared_ptr<Round> join_round(const char* what, Handed in) {
    if (!hall_.round) {
      hall_.round = std::make_shared<Round>();
      hall_.round->what = what;
      hall_.round->first = rank_;
      hall_.round->in.resize(static_cast<size_t>(hall_.ranks));
    }
    const std::shared_ptr<Round> round = hall_.round;
    if (std::strcmp(round->what, what) != 0)
      throw InternalError(str("[comm] rank ", round->first, " calls ", round->what, "(), and rank ", rank_, " ", what,
                              "(): all ranks must make the same calls in the same order"));
    round->in[index()] = std::move(in);
    if (++round->arrived == hall_.ranks) {
      hall_.round = nullptr;
      hall_.scheduler.wake(0);  // in do_once(), rank 0 waits for the last rank
    }
    return round;
  }

  // Lets all clocks count again at the same time: the first rank that wakes must not take the turn of one still asleep.
  void complete(Round& round) {
    round.complete = true;
    std::fill(hall_.away.begin(), hall_.away.end(), uint8_t{0});
    for (int r = 0; r < hall_.ranks; ++r) hall_.scheduler.wake(r);
  }

  // Returns when all ranks have joined and the last of them has run `finish`.
  std::shared_ptr<Round> meet(const char* what, Handed in, const std::function<void(Round&)>& finish) {
    std::unique_lock lock(hall_.scheduler.mutex());
    const std::shared_ptr<Round> round = join_round(what, std::move(in));
    const bool last = round->arrived == hall_.ranks && std::strcmp(what, "once") != 0;
    if (last) {
      lock.unlock();
      if (finish) finish(*round);
      lock.lock();
      complete(*round);
    } else {
      hall_.leave_clock(rank_);
      hall_.scheduler.wait(rank_, lock, what, [&] { return round->complete; });
    }
    return round;
  }

  // The tensors of `ranks`, one after the other.
  static Tensor join(const Round& round, const auto& ranks, int64_t rows, const std::shared_ptr<Allocator>& memory) {
    const Tensor& like = round.in[static_cast<size_t>(ranks.front())].own;
    Shape shape = like.shape();
    shape[0] = rows;
    Tensor all = Tensor::empty(memory, shape, like.dtype(), MemClass::communication);
    int64_t at = 0;
    for (const int rank : ranks) {
      const Tensor& part = round.in[static_cast<size_t>(rank)].own;
      all.slice(at, at + part.dim(0)).copy_from(part);
      at += part.dim(0);
    }
    return all;
  }

  Hall& hall_;
  int rank_;
  int all_threads_;
};

class VirtualGroup final : public CommGroup {
 public:
  VirtualGroup(const VirtualConfig& config, const CommEnv& env)
      : ranks_(static_cast<int>(config.ranks)),
        nodes_(std::make_shared<const RankNodes>(ranks_, config.ranks_per_node)) {
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    threads_ = env.threads > 0 ? env.threads : 1;
    const int fit = std::max(1, cores / threads_);
    at_once_ = std::min(ranks_, config.at_once > 0 ? static_cast<int>(config.at_once) : fit);
    all_threads_ = std::max(threads_, num_threads());
  }
  int size() const override { return ranks_; }
  std::string describe() const override {
    return str(plural(ranks_, "virtual rank"), nodes_->count() > 1 ? str(" in ", nodes_->count(), " nodes") : "", ", ",
               at_once_, " at a time");
  }
  void run(const std::function<void(Communicator&)>& body) override {
    Hall hall(ranks_, at_once_, nodes_);
    std::vector<std::thread> threads;
    const std::string refused = start(hall, threads, body);
    for (std::thread& t : threads) t.join();
    if (!refused.empty())
      throw RunError(str("[virtual] a rank is a thread, and the system refuses the ", threads.size() + 1, "th of ",
                         ranks_, " (", refused, "): ", thread_limits()));
    if (hall.scheduler.error()) std::rethrow_exception(hall.scheduler.error());
  }

 private:
  // No rank begins before all threads exist. Returns the reason if the system refuses a thread; then no rank begins.
  std::string start(Hall& hall, std::vector<std::thread>& threads, const std::function<void(Communicator&)>& body) {
    const std::lock_guard lock(hall.scheduler.mutex());
    try {
      for (int r = 0; r < ranks_; ++r) threads.emplace_back([this, &hall, &body, r] { live(hall, r, body); });
    } catch (const std::system_error& e) {
      hall.cancelled = true;
      return e.code().message();
    }
    return {};
  }

  void live(Hall& hall, int rank, const std::function<void(Communicator&)>& body) {
    hall.scheduler.enter(rank);
    std::exception_ptr error;
    if (!hall.cancelled) try {
        set_num_threads(threads_);
        VirtualCommunicator comm(hall, rank, threads_, all_threads_);
        body(comm);
      } catch (...) {
        error = std::current_exception();
      }
    {
      const std::lock_guard lock(hall.scheduler.mutex());
      hall.leave_clock(rank);
    }
    hall.scheduler.leave(rank, error);
  }

  int ranks_, threads_ = 1, at_once_ = 1, all_threads_ = 1;
  std::shared_ptr<const RankNodes> nodes_;
};

}  // namespace
}  // namespace lmx::virtual_ranks

LMX_PLUGIN(comm, virtual, lmx::virtual_ranks::VirtualConfig, lmx::virtual_ranks::VirtualGroup)
