#include "simt.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "fault.h"

namespace cuda_emulator {

Place place;

namespace {

namespace context = boost::context;

constexpr size_t kStack = size_t{1} << 16, kMostShared = size_t{232} << 10, kPage = 4096;

Order& current_order() {
  static Order order = [] {
    const char* given = std::getenv("LMX_EMULATED_ORDER");
    const std::string name = given ? given : "";
    if (name == "descending") return Order::descending;
    if (name == "scrambled") return Order::scrambled;
    if (!name.empty() && name != "ascending")
      fault("LMX_EMULATED_ORDER is '", name, "'; it may be ascending, descending or scrambled");
    return Order::ascending;
  }();
  return order;
}

std::mt19937_64& generator() {
  static std::mt19937_64 engine(20181016);
  return engine;
}

// The numbers below n in the order of this run.
template <class T>
void arrange(std::vector<T>& order, size_t n) {
  order.resize(n);
  std::iota(order.begin(), order.end(), T{0});
  if (current_order() == Order::descending) std::reverse(order.begin(), order.end());
  if (current_order() == Order::scrambled) std::shuffle(order.begin(), order.end(), generator());
}

// The block's dynamic shared memory ends where a page without access begins.
class SharedMemory {
 public:
  SharedMemory() {
    void* memory = mmap(nullptr, kMostShared + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fault("no memory for a block's shared memory");
    base_ = static_cast<unsigned char*>(memory);
    mprotect(base_ + kMostShared, kPage, PROT_NONE);
  }
  void* begin_block(size_t bytes) {
    bytes_ = (bytes + 15) / 16 * 16;
    unsigned char* begin = base_ + kMostShared - bytes_;
    std::memset(begin, 0xFF, bytes_);
    return begin;
  }
  bool is_behind(const void* address) const {
    const auto* at = static_cast<const unsigned char*>(address);
    return at >= base_ + kMostShared && at < base_ + kMostShared + kPage;
  }
  size_t bytes() const { return bytes_; }

 private:
  unsigned char* base_;
  size_t bytes_ = 0;
};

SharedMemory& shared_memory() {
  static auto& memory = *new SharedMemory;
  return memory;
}

// Threads wait here until all of `need` threads have come.
struct Gate {
  uint32_t need = 0, come = 0;
  int phase = 0;                            // alternates, so that values of one exchange outlive the next one's
  std::array<uint64_t, kWarp> values[2]{};  // of a warp's lanes
  uint32_t votes[2]{};
  Together together = nullptr;  // the operation for which a warp's lanes wait
  std::vector<uint32_t> waiting;
};

// A stack on which threads run, one after the other.
struct Worker {
  context::fiber self;  // while it is suspended
};

class Block {
 public:
  explicit Block(const Launch& launch) : launch_(launch) {
    threads_ = launch.block.x * launch.block.y * launch.block.z;
    place.grid = launch.grid;
    place.block = launch.block;
    worker_of_.resize(threads_);
  }

  void run(uint64_t number) {
    place.block_index = {static_cast<unsigned>(number % launch_.grid.x),
                         static_cast<unsigned>(number / launch_.grid.x % launch_.grid.y),
                         static_cast<unsigned>(number / launch_.grid.x / launch_.grid.y)};
    place.shared = shared_memory().begin_block(launch_.shared);
    arrange(order_, threads_);
    rank_.resize(threads_);
    for (uint32_t i = 0; i < threads_; ++i) rank_[order_[i]] = i;
    started_ = ended_ = waited_ = 0;
    barrier_ = {};
    whole_warps_.resize((threads_ + kWarp - 1) / kWarp);
    for (Gate& gate : whole_warps_) gate.come = 0, gate.waiting.clear();
    part_warps_.clear();
    while (true) {
      if (!ready_.empty()) {
        resume(next_ready());
      } else if (started_ < threads_) {
        resume(idle_worker());
      } else {
        break;
      }
    }
    if (ended_ < threads_) report_deadlock();
    if (launch_.early && waited_ != threads_)
      fault("a kernel that may start early, and only ", waited_, " of the block's ", threads_,
            " threads wait for the kernel before it");
  }
  void wait_for_previous_grid() { ++waited_; }

  // Called by a thread, on its worker's stack.
  int wait_for_block(bool predicate) {
    const int phase = barrier_.phase;
    barrier_.need = threads_;
    if (barrier_.come == 0) barrier_.votes[phase] = 0;
    barrier_.votes[phase] += predicate;
    wait(barrier_);
    return static_cast<int>(barrier_.votes[phase]);
  }
  const std::array<uint64_t, kWarp>& wait_for_warp(uint32_t mask, uint64_t value, Together together) {
    const uint32_t lane = thread_ % kWarp;
    if (!(mask >> lane & 1u)) fault("lane ", lane, " takes part in an exchange whose mask excludes it");
    Gate& gate = gate_of(thread_ / kWarp, mask);
    if (gate.come > 0 && gate.together != together)
      fault("lane ", lane, " meets lane ", gate.waiting.front() % kWarp, ", which takes part in another exchange");
    const int phase = gate.phase;
    gate.together = together;
    gate.need = static_cast<uint32_t>(std::popcount(mask));
    gate.values[phase][lane] = value;
    if (together && gate.come + 1 == gate.need) together(gate.values[phase]);
    wait(gate);
    return gate.values[phase];
  }
  uint32_t lane() const { return thread_ % kWarp; }

 private:
  Gate& gate_of(uint32_t warp, uint32_t mask) { return mask == ~0u ? whole_warps_[warp] : part_warps_[{warp, mask}]; }

  void enter(uint32_t thread) {
    thread_ = thread;
    place.thread_index = {thread % launch_.block.x, thread / launch_.block.x % launch_.block.y,
                          thread / launch_.block.x / launch_.block.y};
  }

  // Enters the thread that continues next, and returns its worker.
  Worker* next_ready() {
    const uint32_t thread = ready_.front();
    ready_.pop_front();
    enter(thread);
    return worker_of_[thread];
  }

  // Runs until all threads wait, or until a worker finds no thread that it could start: which worker that is may be
  // another one than this.
  void resume(Worker* worker) {
    left_ = &scheduler_;
    running_ = worker;
    context::fiber last = std::move(worker->self).resume();
    running_->self = std::move(last);
  }

  // Both suspend the running worker until the scheduler or another worker resumes it.
  static void switch_to_scheduler() { keep(std::move(scheduler_).resume()); }
  void switch_to(Worker* next) {
    left_ = &std::exchange(running_, next)->self;
    keep(std::move(next->self).resume());
  }
  // Keeps what was suspended when this worker was resumed.
  static void keep(context::fiber&& from) { *left_ = std::move(from); }

  Worker* idle_worker() {
    if (idle_.empty()) {
      workers_.push_back(std::make_unique<Worker>());
      Worker* made = workers_.back().get();
      made->self = context::fiber(std::allocator_arg, context::fixedsize_stack(kStack), [made](context::fiber&& from) {
        keep(std::move(from));
        while (true) {
          current->run_threads(made);
          switch_to_scheduler();
        }
        return context::fiber{};
      });
      idle_.push_back(made);
    }
    Worker* worker = idle_.back();
    idle_.pop_back();
    return worker;
  }

  void run_threads(Worker* worker) {
    while (started_ < threads_) {
      const uint32_t thread = order_[started_++];
      enter(thread);
      worker_of_[thread] = worker;
      launch_.body();
      ++ended_;
    }
    idle_.push_back(worker);
  }

  void wait(Gate& gate) {
    const uint32_t thread = thread_;
    gate.waiting.push_back(thread);
    if (++gate.come == gate.need) {
      gate.come = 0;
      gate.phase ^= 1;
      if (current_order() == Order::scrambled)
        std::shuffle(gate.waiting.begin(), gate.waiting.end(), generator());
      else
        std::sort(gate.waiting.begin(), gate.waiting.end(),
                  [&](uint32_t a, uint32_t b) { return rank_[a] < rank_[b]; });
      ready_.insert(runs_ahead() ? ready_.begin() : ready_.end(), gate.waiting.begin(), gate.waiting.end());
      gate.waiting.clear();
    }
    if (ready_.empty())
      switch_to_scheduler();
    else if (Worker* next = next_ready(); next != running_)
      switch_to(next);
  }

  // Whether threads that have met continue before those that were ready earlier: a warp then computes as far as the
  // next barrier while other warps have not begun. In ascending order all warps advance alike.
  static bool runs_ahead() {
    if (current_order() == Order::scrambled) return generator()() % 2 == 0;
    return current_order() == Order::descending;
  }

  void report_deadlock_of(const Gate& gate, uint32_t mask) {
    if (gate.come == 0) return;
    enter(gate.waiting.front());
    fault("an exchange among the lanes of mask ", mask, " that only ", gate.come, " of ", gate.need, " lanes reach");
  }
  [[noreturn]] void report_deadlock() {
    if (barrier_.come > 0) {
      enter(barrier_.waiting.front());
      fault("a barrier that only ", barrier_.come, " of the block's ", threads_, " threads reach");
    }
    for (const Gate& gate : whole_warps_) report_deadlock_of(gate, ~0u);
    for (const auto& [key, gate] : part_warps_) report_deadlock_of(gate, key.second);
    fault("threads that never end");
  }

 public:
  static Block* current;

 private:
  const Launch& launch_;
  uint32_t threads_, thread_ = 0, started_ = 0, ended_ = 0, waited_ = 0;
  std::vector<uint32_t> order_, rank_;
  std::vector<Worker*> worker_of_;
  std::deque<uint32_t> ready_;
  Gate barrier_;
  std::vector<Gate> whole_warps_;                             // for exchanges among all lanes of a warp
  std::map<std::pair<uint32_t, uint32_t>, Gate> part_warps_;  // by warp and mask
  Worker* running_ = nullptr;
  // Stacks are kept from launch to launch.
  static std::vector<std::unique_ptr<Worker>>& workers_;
  static std::vector<Worker*>& idle_;
  static context::fiber& scheduler_;  // while a worker runs
  static context::fiber* left_;       // the place of the fiber that was left last for another one
};

Block* Block::current = nullptr;
std::vector<std::unique_ptr<Worker>>& Block::workers_ = *new std::vector<std::unique_ptr<Worker>>;
std::vector<Worker*>& Block::idle_ = *new std::vector<Worker*>;
context::fiber& Block::scheduler_ = *new context::fiber;
context::fiber* Block::left_ = nullptr;

const Launch* running = nullptr;

}  // namespace

void set_order(Order order) {
  current_order() = order;
}
Order order() {
  return current_order();
}
uint64_t next_random(uint64_t n) {
  return generator()() % n;
}

void run(const Launch& launch) {
  running = &launch;
  Block block(launch);
  Block::current = &block;
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  if (current_order() == Order::scrambled) {
    std::vector<uint64_t> order;
    arrange(order, blocks);
    for (const uint64_t b : order) block.run(b);
  } else {
    for (uint64_t i = 0; i < blocks; ++i) block.run(current_order() == Order::ascending ? i : blocks - 1 - i);
  }
  Block::current = nullptr;
  running = nullptr;
}

void wait_for_previous_grid() {
  Block::current->wait_for_previous_grid();
}
void block_barrier() {
  Block::current->wait_for_block(false);
}
int block_count(bool predicate) {
  return Block::current->wait_for_block(predicate);
}
const std::array<uint64_t, kWarp>& warp_exchange(unsigned int mask, uint64_t value) {
  return Block::current->wait_for_warp(mask, value, nullptr);
}
void warp_operation(unsigned int mask, uint64_t value, Together together) {
  (void)Block::current->wait_for_warp(mask, value, together);
}
unsigned int lane() {
  return Block::current->lane();
}
void no_value(unsigned int lane, unsigned int mask) {
  fault("reads the value of lane ", lane, ", which is not in the mask ", mask);
}

bool running_kernel() {
  return running != nullptr;
}

std::string where_running() {
  if (!running) return "";
  std::ostringstream text;
  const uint3 b = place.block_index, t = place.thread_index;
  text << '[' << running->name << "] block (" << b.x << ", " << b.y << ", " << b.z << "), thread (" << t.x << ", "
       << t.y << ", " << t.z << "): ";
  return text.str();
}

std::string shared_memory_at(const void* address) {
  if (!running || !shared_memory().is_behind(address)) return "";
  std::ostringstream text;
  text << "access beyond the " << running->shared << " bytes of shared memory of the block";
  return text.str();
}

}  // namespace cuda_emulator
