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
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/counting/device.h"
#include "data/data_config.h"
#include "data/drawn_text.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "recipe/comm_config.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"
#include "tensor/caching_allocator.h"
#include "tensor/planned_products.h"
#include "train/loop/counted_step.h"

namespace lmx::app {

Shares shares_of(const Recipe& r, const BatchPlan& batch, int ranks) {
  const bool pairs = batch.items == Items::sub_batches;
  const int64_t sequences = (r.batch.global + ranks - 1) / ranks, length = batch.item_tokens;
  const int64_t pass = pairs ? r.batch.micro_tokens : 0;
  return {.ranks = ranks,
          .step_tokens = r.batch.global * length,
          .vocab = vocabulary_size(r.data),
          .sequences = sequences,
          .length = length,
          .own_tokens = sequences * length,
          .forward_tokens =
              pass > 0 ? std::min(pass, sequences * length) : forward_shape(r, ranks, batch).sequences * length,
          .pairs = pairs};
}

Outline outline_of(const Recipe& r, int ranks, int ranks_per_node) {
  Outline o;
  o.network = make_network(r, vocabulary_size(r.data), nullptr);
  check_patterns(r, o.network.specs);
  o.batch = planned_batcher(r.batcher)->plan();
  o.shares = shares_of(r, o.batch, ranks);
  o.sync = make_exchanger(r.sync, "sync", SyncEnv{"", o.network.specs, 0, ranks, RandomKey(), ranks_per_node});
  o.sync->check_loss(*o.network.loss);
  o.sync->check_directions(read_clip(r.clip, "clip"), r.precision == "fp16",
                           *make_optimizer(r.optimizer, "optimizer", o.network.specs));
  return o;
}

namespace {

// Tokens of a step, and of a batch of the validation: batches are real also where a step only counts. Sentences take
// more of the host's time than windows of a text.
constexpr int64_t kMostTokens = int64_t{1} << 24, kMostPairTokens = int64_t{1} << 22;
constexpr int64_t kMostSentences = int64_t{1} << 28;  // tokens of the text of all ranks, which is stored
constexpr int64_t kMostText = 256;                    // times as much as a batcher's plan says
constexpr int64_t kStrings = 16;                      // windows of a validation's text for each shard: some strings
constexpr int64_t kLeastString = 8;
// Sizes and places of the parts that a rank sends to another one, if each rank gets another part (measured with
// 1,000 and 2,000 ranks of one_bit).
constexpr int64_t kPairBytes = 110;
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

// `items`: of all ranks that are counted.
void require_countable(const Recipe& r, const BatchPlan& plan, int64_t items) {
  const bool pairs = plan.items == Items::sub_batches;
  const auto check = [](const char* keys, int64_t count, int64_t tokens, int64_t most) {
    if (count > most / std::max<int64_t>(1, tokens))
      throw UserError(str("[memory] a step of this recipe is too large to be counted: ", count, " times ", tokens,
                          " tokens are more than ", most, "; reduce ", keys));
  };
  if (pairs)
    check("batch.global or the tokens of a sub-batch", items, plan.item_tokens, kMostPairTokens);
  else
    check("batch.global or the length of a sequence", items, plan.item_tokens, kMostTokens);
  check("train.eval_batch", r.train.eval_batch, pairs ? kSentence : plan.item_tokens, kMostTokens);
}

// Text for two steps and a validation, in which a batcher of contiguous parts reads other words in each step. `more`: a
// factor of the text.
Dataset text_for(const Recipe& r, const BatchPlan& plan, const WordLaw& law, int64_t more) {
  const bool pairs = plan.items == Items::sub_batches;
  int64_t step = 0, tokens = 0, valid = 0;
  const int64_t evaluated = pairs ? kSentence : plan.item_tokens;
  const std::string kind = r.data.at_path("tokens") ? r.data.at_path("tokens")->text : "words";
  const bool strings = kind_of(r.data) == Kind::text && kind != "words";
  if (__builtin_mul_overflow(r.batch.global, plan.item_tokens + 1, &step) ||
      __builtin_mul_overflow(step, 3 * more, &tokens) ||
      __builtin_mul_overflow(r.train.eval_batch, more * (strings ? kStrings : 2) * (evaluated + 1), &valid) ||
      (pairs && tokens > kMostSentences))
    too_large("its text would have too many tokens");
  return drawn_text({.vocabulary = vocabulary_size(r.data),
                     .tokens = tokens + plan.item_tokens + 2,
                     .valid_tokens = valid + 2,
                     .pairs = pairs,
                     .longest = plan.item_tokens,
                     .string = strings ? std::max<int64_t>(kLeastString, plan.item_tokens / 2) : 0,
                     .law = law,
                     .step = r.batch.global * plan.item_tokens});
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
    start.open = [&] { return text_for(recipe, plan, group.law, more); };
    try {
      return count(start);
    } catch (const TooLargeStep&) {
      throw;
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

RankCount count_of(const StepMemory& steps, int ranks) {
  const RankMemory memory = memory_of(steps);
  RankCount count{memory,      memory.of(MemClass::optimizer), steps.largest, steps.last, {}, steps.server, steps.rows,
                  steps.update};
  if (ranks > 1) count.units = steps.units;
  return count;
}

// The count of a child process writes its result, or the text of an error, to a pipe.
enum class Written : char { result = 'r', user_error = 'u', error = 'e' };

// A result as bytes: structures without pointers unchanged, lists and texts after their sizes.
class Bytes {
 public:
  explicit Bytes(std::string text = {}) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }

  template <class T>
  void write(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void read(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (text_.size() - at_ < sizeof value) throw RunError("[memory] the result of a counted step is incomplete");
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
  }
  template <class T>
  void write(const std::vector<T>& list) {
    write_list(list);
  }
  template <class T>
  void read(std::vector<T>& list) {
    read_list(list);
  }
  void write(const std::string& value) { write_list(value); }
  void read(std::string& value) { read_list(value); }
  template <class A, class B>
  void write(const std::pair<A, B>& value) {
    write_all(value.first, value.second);
  }
  template <class A, class B>
  void read(std::pair<A, B>& value) {
    read_all(value.first, value.second);
  }
  void write(const RankCount& c) {
    write_all(c.memory, c.state, c.pass, c.last, c.units, c.server, c.update);
    write(std::vector<std::pair<std::string, int64_t>>(c.rows.begin(), c.rows.end()));
  }
  void read(RankCount& c) {
    std::vector<std::pair<std::string, int64_t>> rows;
    read_all(c.memory, c.state, c.pass, c.last, c.units, c.server, c.update, rows);
    c.rows = {rows.begin(), rows.end()};
  }
  void write(const CountedPass& p) { write_all(p.tokens, p.forward, p.backward, p.ready); }
  void read(CountedPass& p) { read_all(p.tokens, p.forward, p.backward, p.ready); }
  void write(const UnitTime& u) { write_all(u.rule, u.params, u.bytes, u.period, u.delay, u.after_update); }
  void read(UnitTime& u) { read_all(u.rule, u.params, u.bytes, u.period, u.delay, u.after_update); }

 private:
  template <class... Parts>
  void write_all(const Parts&... parts) {
    (write(parts), ...);
  }
  template <class... Parts>
  void read_all(Parts&... parts) {
    (read(parts), ...);
  }
  template <class List>
  void write_list(const List& list) {
    write(list.size());
    for (const auto& item : list) write(item);
  }
  template <class List>
  void read_list(List& list) {
    size_t size = 0;
    read(size);
    list.resize(std::min(size, text_.size()));
    for (auto& item : list) read(item);
  }

  std::string text_;
  size_t at_ = 0;
};

template <class Result, class Count>
[[noreturn]] void count_in_child(int pipe, Count&& count) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::string text;
  try {
    Bytes bytes(std::string(1, static_cast<char>(Written::result)));
    bytes.write(count());
    text = bytes.text();
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
// begins, names the plugin and records the crash. No other thread may run, because a mutex that it holds would stay
// locked in the child.
template <class Result, class Count>
Result counted(Count&& count) {
  static std::mutex counting;
  const std::unique_lock alone(counting, std::try_to_lock);
  LMX_CHECK(alone.owns_lock(), "two threads count a step at the same time");
  const auto checked = [&]() -> Result {
    try {
      return count();
    } catch (const OutOfMemory&) {
      too_large("it needs terabytes, or more addresses than `ulimit -v` allows");
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
  if (text[0] == static_cast<char>(Written::error)) throw RunError(text.substr(1));
  Result result;
  Bytes(text.substr(1)).read(result);
  return result;
}

// One rank of a group, or one worker of a server, in which the others do not exist.
RankCount count_one(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group, bool overlaps) {
  require_countable(recipe, plan, (recipe.batch.global + group.ranks - 1) / group.ranks);
  const auto device = CountingDevice::make(group.device);
  const comm::CountedRank rank{.rank = rank_to_count(recipe.batch.global, group.ranks),
                               .ranks = group.ranks,
                               .per_node = group.per_node,
                               .overlaps = overlaps && group.ranks > 1,
                               .threads = num_threads()};
  return count_of(
      count_over_text(*device, recipe, plan, group,
                      [&](const SessionStart& start) { return count_steps(recipe, rank, start, group.law); }),
      group.ranks);
}

// All ranks, one after the other.
ProcessMemory count_threads(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group) {
  require_countable(recipe, plan, recipe.batch.global);
  const auto device = CountingDevice::make(group.device);
  const Node comm =
      parse_yaml(str("{name: virtual, ranks: ", group.ranks,
                     ", at_once: 1, ranks_per_node: ", group.per_node >= group.ranks ? 0 : group.per_node, "}"),
                 "count");
  const auto threads =
      make_comm_group(comm, "comm", CommEnv{.threads = static_cast<int>(std::max<int64_t>(1, recipe.threads))});
  ProcessMemory process;
  const StepMemory steps = count_over_text(
      *device, recipe, plan, group, [&](const SessionStart& start) { return run_steps(recipe, *threads, start); });
  process.rank = memory_of(steps);
  const auto& ledger = steps.ledgers.front();
  if (std::any_of(ledger.begin(), ledger.end(), [](const LedgerEntry& e) { return e.listed; }))
    process.pairs = kPairBytes;
  process.total = device->memory()->stats().total_peak;
  return process;
}

// The recipe with the share that each of `ranks` ranks has, on `fewer` of them.
Recipe on_fewer(const Recipe& recipe, int ranks, int fewer) {
  Recipe own = recipe;
  own.batch.global = std::max<int64_t>(1, (recipe.batch.global + ranks - 1) / ranks * fewer);
  return own;
}

// All on which a count over drawn text depends. Plans of an experiment's cells often differ in other keys only.
std::string key_of(const Recipe& recipe, const CountedGroup& group) {
  static const std::set<std::string> without{"seed", "run", "checkpoint", "schedule", "stop", "provenance", "lr_rule"};
  const ProductSupport* products = planned_products();
  std::string key = str(name_of(Device{group.device}), " ", group.ranks, " ", group.per_node, " ", num_threads(), " ",
                        products ? 1 + products->gpu + 2 * products->bf16 : 0, " ", group.law.name(), "\n");
  for (const auto& [name, value] : write_config(recipe).entries)
    if (!without.contains(name)) key += str(name, ":\n", to_yaml(value));
  return key;
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

RankCount count_rank(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group) {
  static std::map<std::string, RankCount> known;
  const Threads threads(recipe.threads);
  const std::string key = group.open ? "" : key_of(recipe, group);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const RankCount count = counted<RankCount>([&] {
    RankCount one = count_one(recipe, plan, group, true);
    if (group.ranks > 1 && is_asynchronous(recipe.sync, "sync"))  // the state of a shard is a part
      one.state = count_one(on_fewer(recipe, group.ranks, 1), plan,
                            {.device = group.device, .open = group.open, .law = group.law}, false)
                      .state;
    return one;
  });
  return key.empty() ? count : known.emplace(key, count).first->second;
}

ProcessMemory count_process(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group, int64_t at_once) {
  const Threads threads(num_threads());
  return counted<ProcessMemory>([&] {
    ProcessMemory process;
    const int64_t ranks = group.ranks;
    if (is_asynchronous(recipe.sync, "sync")) {
      process.rank = count_one(on_fewer(recipe, group.ranks, 1), plan, {group.device, 1, 0, group.open}, false).memory;
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
      process.rank = count_one(recipe, plan, group, false).memory;
    }
    process.pairs *= ranks * ranks;
    process.total += (at_once - 1) * process.rank.of(MemClass::activations);
    return process;
  });
}

}  // namespace lmx::app
