#include "app/memory/counted.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "backend/counting/device.h"
#include "data/data_config.h"
#include "data/drawn_text.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "recipe/comm_config.h"
#include "recipe/sync_rules.h"
#include "tensor/caching_allocator.h"
#include "train/loop/counted_step.h"

namespace lmx {
namespace {

using namespace train;

constexpr int64_t kMostPairTokens = int64_t{1} << 28;  // of drawn sentences, which are stored
constexpr int64_t kMostText = 256;                     // times as much as a batcher's plan says
constexpr int64_t kStrings = 256;                      // windows of a validation's text for each shard: some strings
// Virtual ranks that are counted. The memory of more grows in proportion.
constexpr int kMostThreads = 64;

// The number of threads of the calling thread's parallel regions while it lives.
class Threads {
 public:
  explicit Threads(int64_t threads) : before_(num_threads()) {
    if (threads > 0) set_num_threads(static_cast<int>(threads));
  }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

[[noreturn]] void too_large(const std::string& what) {
  throw UserError(str("[memory] a step of this recipe is too large to be counted: ", what,
                      ". batch.global, the length of a sequence or a size of the model is too large"));
}

// Text for two steps and a validation, in which a batcher of contiguous parts reads other words in each step. `more`: a
// factor of the text.
Dataset text_for(const Recipe& r, const BatchPlan& plan, int64_t more) {
  const bool pairs = plan.items == Items::sub_batches;
  int64_t step = 0, tokens = 0, valid = 0;
  const int64_t evaluated = pairs ? data::kSentence : plan.item_tokens;
  const std::string kind = r.data.at_path("tokens") ? r.data.at_path("tokens")->text : "words";
  const bool strings = data::kind_of(r.data) == data::Kind::text && kind != "words";
  if (__builtin_mul_overflow(r.batch.global, plan.item_tokens + 1, &step) ||
      __builtin_mul_overflow(step, 3 * more, &tokens) ||
      __builtin_mul_overflow(r.train.eval_batch, more * (strings ? kStrings : 2) * (evaluated + 1), &valid) ||
      (pairs && tokens > kMostPairTokens))
    too_large("its text would have too many tokens");
  return data::drawn_text({.vocabulary = data::vocabulary_size(r.data),
                           .tokens = tokens + plan.item_tokens + 2,
                           .valid_tokens = valid + 2,
                           .pairs = pairs,
                           .longest = plan.item_tokens,
                           .strings = strings});
}

// Calls count(start) with text that suffices. A batcher may need more than its plan says, for example many shards.
template <class Count>
auto count_over_text(const CountingDevice& device, const Recipe& recipe, const BatchPlan& plan,
                     const CountedGroup& group, Count&& count) {
  SessionStart start;
  start.device = device.device();
  start.open = group.open;
  if (start.open) return count(start);
  for (int64_t more = 1;; more *= 16) {
    start.open = [&] { return text_for(recipe, plan, more); };
    try {
      return count(start);
    } catch (const UserError&) {
      if (more == kMostText) throw;
    }
  }
}

// The first of the ranks with the largest share.
int rank_to_count(int64_t global, int ranks) {
  const int64_t largest = (global + ranks - 1) / ranks;
  for (int r = 0; r < ranks; ++r)
    if (chunk_begin(global, r + 1, ranks) - chunk_begin(global, r, ranks) == largest) return r;
  return 0;
}

RankMemory memory_of(const StepMemory& steps) {
  return {steps.training, steps.evaluation};
}

// The count of a child process writes its result, or the text of an error, to a pipe.
enum class Written : char { result = 'r', user_error = 'u', error = 'e' };

template <class Result, class Count>
[[noreturn]] void count_in_child(int pipe, Count&& count) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::string text;
  try {
    const Result result = count();
    text = static_cast<char>(Written::result) + std::string(reinterpret_cast<const char*>(&result), sizeof result);
  } catch (const UserError& e) {
    text = static_cast<char>(Written::user_error) + std::string(e.what());
  } catch (const std::exception& e) {
    text = static_cast<char>(Written::error) + std::string(e.what());
  }
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(pipe, text.data() + at, text.size() - at);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  _exit(0);
}

std::string read_all(int pipe) {
  std::string text;
  char part[4096];
  for (ssize_t n = 0; (n = read(pipe, part, sizeof part)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) text.append(part, static_cast<size_t>(n));
  return text;
}

// The result of `count`, which a child process computes: if a plugin crashes in a counted step, the run itself still
// begins, names the plugin and records the crash.
template <class Result, class Count>
Result counted(Count&& count) {
  static_assert(std::is_trivially_copyable_v<Result>);
  const auto checked = [&]() -> Result {
    try {
      return count();
    } catch (const OutOfMemory&) {
      too_large("it needs terabytes");
    }
  };
#ifdef __SANITIZE_THREAD__
  return checked();  // a fork of several threads would end the program
#endif
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return checked();
  const pid_t child = fork();
  if (child == 0) count_in_child<Result>(ends[1], checked);
  close(ends[1]);
  const std::string text = child > 0 ? read_all(ends[0]) : "";
  close(ends[0]);
  if (child < 0) return checked();
  waitpid(child, nullptr, 0);
  if (text.empty()) throw RunError("[memory] a counted step of this recipe crashed");
  if (text[0] == static_cast<char>(Written::user_error)) throw UserError(text.substr(1));
  Result result;
  if (text[0] == static_cast<char>(Written::error) || text.size() != 1 + sizeof result) throw RunError(text.substr(1));
  std::memcpy(&result, text.data() + 1, sizeof result);
  return result;
}

// One rank of a group in which the others do not exist.
RankMemory count_one(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group, bool overlaps) {
  const auto device = CountingDevice::make(group.device);
  const comm::CountedRank rank{.rank = rank_to_count(recipe.batch.global, group.ranks),
                               .ranks = group.ranks,
                               .per_node = group.per_node,
                               .overlaps = overlaps && group.ranks > 1,
                               .threads = num_threads()};
  return memory_of(count_over_text(*device, recipe, plan, group,
                                   [&](const SessionStart& start) { return count_steps(recipe, rank, start); }));
}

// One worker of a server. A process has all values twice, as a store for its shard and as its replica, and the state of
// the optimizer for its shard.
RankMemory count_worker(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group) {
  Recipe own = recipe;
  own.batch.global = std::max<int64_t>(1, (recipe.batch.global + group.ranks - 1) / group.ranks);
  const auto device = CountingDevice::make(group.device);
  RankMemory memory = memory_of(count_over_text(
      *device, own, plan, group, [&](const SessionStart& start) { return count_steps(own, {.ranks = 1}, start); }));
  const int64_t state = memory.of(MemClass::optimizer), elsewhere = state - state / group.ranks;
  for (MemoryStats* stats : {&memory.training, &memory.evaluation}) {
    stats->peak[static_cast<size_t>(MemClass::optimizer)] -= elsewhere;
    stats->total_peak -= elsewhere;
  }
  return memory;
}

// All ranks, one after the other.
ProcessMemory count_threads(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group) {
  const auto device = CountingDevice::make(group.device);
  Node comm = Node::map();
  comm.set("name", Node::string("virtual"));
  comm.set("ranks", Node::scalar(std::to_string(group.ranks)));
  comm.set("at_once", Node::scalar("1"));
  comm.set("ranks_per_node", Node::scalar(std::to_string(group.per_node >= group.ranks ? 0 : group.per_node)));
  const auto threads =
      make_comm_group(comm, "comm", CommEnv{.threads = static_cast<int>(std::max<int64_t>(1, recipe.threads))});
  ProcessMemory process;
  process.rank = memory_of(count_over_text(
      *device, recipe, plan, group, [&](const SessionStart& start) { return run_steps(recipe, *threads, start); }));
  process.total = device->memory()->stats().total_peak;
  return process;
}

// The recipe with the share that each of `ranks` ranks has, on `fewer` of them.
Recipe on_fewer(const Recipe& recipe, int ranks, int fewer) {
  Recipe own = recipe;
  own.batch.global = std::max<int64_t>(1, (recipe.batch.global + ranks - 1) / ranks * fewer);
  return own;
}

}  // namespace

int64_t RankMemory::of(MemClass c) const {
  const auto i = static_cast<size_t>(c);
  return std::max(training.peak[i], evaluation.peak[i]);
}

std::array<std::pair<const char*, int64_t>, kMemClasses> RankMemory::classes() const {
  std::array<std::pair<const char*, int64_t>, kMemClasses> all;
  for (int c = 0; c < kMemClasses; ++c)
    all[static_cast<size_t>(c)] = {name_of(static_cast<MemClass>(c)), of(static_cast<MemClass>(c))};
  return all;
}

RankMemory count_rank(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group) {
  const Threads threads(recipe.threads);
  return counted<RankMemory>([&] {
    if (SyncRules::asynchronous(recipe.sync, "sync")) return count_worker(recipe, plan, group);
    return count_one(recipe, plan, group, true);
  });
}

ProcessMemory count_process(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group, int64_t at_once) {
  const Threads threads(num_threads());
  return counted<ProcessMemory>([&] {
    ProcessMemory process;
    const int64_t ranks = group.ranks;
    if (SyncRules::asynchronous(recipe.sync, "sync")) {
      process.rank = count_worker(recipe, plan, {group.device, 1, 0, group.open});
      const int64_t shared = process.rank.of(MemClass::optimizer) + process.rank.of(MemClass::parameters) / 2;
      process.total = shared + ranks * (process.rank.total() - shared);
      return process;
    }
    const int most = std::min(group.ranks, kMostThreads);
    process =
        count_threads(on_fewer(recipe, group.ranks, most), plan, {group.device, most, group.per_node, group.open});
    if (group.ranks > most) {
      const int half = most / 2;
      const int64_t before =
          count_threads(on_fewer(recipe, group.ranks, half), plan, {group.device, half, group.per_node, group.open})
              .total;
      process.total += (ranks - most) * std::max<int64_t>(0, process.total - before) / (most - half);
      process.rank = count_one(recipe, plan, group, false);
    }
    process.total += (at_once - 1) * process.rank.of(MemClass::activations);
    return process;
  });
}

}  // namespace lmx
