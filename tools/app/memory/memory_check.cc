#include "app/memory/memory_check.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <thread>

#include "backend/cuda.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "recipe/comm_config.h"
#include "tensor/caching_allocator.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;

// Returns the number at the start of a file; 0: none ("max").
int64_t number_in(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  int64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

int64_t total_of_machine(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string key; file >> key;) {
    int64_t kilobytes = 0;
    if (key == "MemTotal:" && file >> kilobytes) return kilobytes * 1024;
    std::getline(file, key);
  }
  return 0;
}

void take_less(MachineMemory& memory, int64_t bytes, const char* limit) {
  if (bytes <= 0 || (memory.bytes > 0 && bytes >= memory.bytes)) return;
  memory = {bytes, limit};
}

// Applies the limits of the group `path` below `mount` and of all its parents, which also limit it.
void take_groups(MachineMemory& memory, const std::string& mount, const std::string& path, const char* file) {
  for (fs::path group = path;; group = group.parent_path()) {
    take_less(memory, number_in(mount + group.string() + "/" + file), "the memory limit of its cgroup");
    if (!group.has_relative_path()) return;
  }
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory{total_of_machine(root), ""};
  // Lines are "0::/path" in version 2, "9:memory:/path" in version 1.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (kind.empty()) take_groups(memory, root + "/sys/fs/cgroup", path, "memory.max");
    if (kind == "memory") take_groups(memory, root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
  }
  rlimit addresses{};
  if (root.empty() && getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    take_less(memory, static_cast<int64_t>(addresses.rlim_cur), "the limit on its addresses (ulimit -v)");
  return memory;
}

namespace {

// Processes can be on any machine of a cluster. If a launcher has started this process, it has set how many of them are
// here. They get the GPUs of their host in turn, unless the recipe names one.
int ranks_here(const Recipe& r, int ranks, bool on_device) {
  if (in_one_process(r.comm, "comm")) return ranks;
  const int local = std::min(ranks, detect_launch().local_size);
  const int devices = on_device && (r.device == "cuda" || r.device == "auto") ? std::max(1, load_cuda()) : 1;
  return (local + devices - 1) / devices;
}

// The virtual ranks that compute at the same time. Without `comm.at_once` the group chooses as many as the machine has
// cores for.
int64_t ranks_at_once(const Recipe& r, int64_t ranks) {
  if (const int64_t chosen = comm_at_once(r.comm, "comm"); chosen > 0) return std::min(ranks, chosen);
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::min(ranks, std::max<int64_t>(1, cores / std::max<int64_t>(1, r.threads)));
}

void find_memory(const Recipe& r, MemoryCheck& check) {
  try {
    const Device device = device_named(r.device, r.device_place);
    if (device.kind == Device::Kind::cpu) {
      check.there = machine_memory();
      return;
    }
    const CudaDeviceInfo info = cuda_device_info(device.index);
    check.there = {info.memory, name_of(device)};
    check.on_device = true;
    check.device_line = str("device ", name_of(device), " (", describe(info), ") with ", bytes_text(info.memory), "\n");
  } catch (const UserError& e) {  // jobs of a sweep may run on another machine, which has the device
    check.missing_device = e.what();
  }
}

}  // namespace

int64_t MemoryCheck::allowed(const Recipe& recipe, double part) const {
  if (recipe.memory.budget > 0) return std::llround(recipe.memory.budget * 1e9);
  return std::llround(part * static_cast<double>(there.bytes));
}

int64_t MemoryCheck::cap(int64_t allowed, int64_t optimizer_now) const {
  if (allowed == 0) return 0;
  const int64_t exchange = in_turn ? 0 : rank.of(MemClass::communication);
  const int64_t later = std::max<int64_t>(0, rank.of(MemClass::optimizer) - optimizer_now) + exchange;
  return std::max<int64_t>(1, (in_turn ? allowed - pairs : allowed / here) - later);
}

std::string MemoryCheck::there_text() const {
  const std::string who =
      there.limit.empty() ? "this machine has " : str(there.limit, on_device ? " has " : " allows ");
  return str(who, bytes_text(there.bytes));
}

std::string over_budget(const Recipe& r, const MemoryCheck& check) {
  const double budget = r.memory.budget * 1e9;
  if (budget <= 0 || static_cast<double>(check.machine) <= budget) return "";
  return str(bytes_text(check.machine), ", more than memory.budget, ", bytes_text(std::llround(budget)));
}

std::string MemoryCheck::missing() const {
  if (there.bytes == 0 || machine <= there.bytes) return {};
  const std::string who = here > 1    ? str(" for ", here, on_device ? " ranks on it" : " ranks on this machine")
                          : ranks > 1 ? " for one rank"
                                      : "";
  return str(bytes_text(machine), who, ", and ", there_text());
}

std::string MemoryCheck::largest() const {
  auto classes = rank.classes();
  std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return str(class_text(std::span(classes).first(2)), ranks > 1 ? " of each rank" : "");
}

namespace {

MemoryCheck check_memory(const Recipe& r, const Outline& o, int per_node) {
  MemoryCheck check;
  check.ranks = o.shares.ranks;
  find_memory(r, check);
  const bool cuda = check.on_device || r.device.starts_with("cuda");
  check.group = {cuda ? Device::Kind::cuda : Device::Kind::cpu, check.ranks, per_node};
  check.here = ranks_here(r, check.ranks, check.on_device);
  check.in_turn = check.ranks > 1 && in_one_process(r.comm, "comm");
  if (!check.in_turn) {
    check.rank = count_rank(r, o.batch, check.group).memory;
    check.machine = check.here * check.rank.total();
    return check;
  }
  const ProcessMemory process = count_process(r, o.batch, check.group, ranks_at_once(r, check.here));
  check.rank = process.rank;
  check.pairs = process.pairs;
  check.machine = process.total + check.pairs;
  return check;
}

void judge(const Recipe& r, const MemoryCheck& check, bool warns) {
  if (const std::string over = over_budget(r, check); !over.empty())
    throw UserError(
        str("[memory] the estimate is ", over, ". The largest items: ", check.largest(), ". ", kMemoryRemedy));
  if (const std::string missing = check.missing(); warns && !missing.empty())
    log_warn(str("[memory] the estimate is ", missing, ". The largest items: ", check.largest(), ". ", kMemoryRemedy,
                 ". memory.budget=N (GB) makes this an error"));
}

}  // namespace

MemoryPlanner::MemoryPlanner(const Recipe& recipe, int ranks, int ranks_per_node)
    : recipe_(recipe), per_node_(ranks_per_node), outline_(outline_of(recipe, ranks, ranks_per_node)) {
  outline_.sync->check_run(recipe.sync);
  if (recipe.batch.global > 0) outline_.sync->check_batch(recipe.batch.global);  // 0: batch.fit chooses it
}

Shares MemoryPlanner::shares(const BatchConfig& batch) const {
  Recipe recipe = recipe_;
  recipe.batch = batch;
  return shares_of(recipe, outline_.batch, outline_.shares.ranks);
}

double MemoryPlanner::token_flops(const BatchConfig& batch, const MemoryCheck& check) const {
  Recipe recipe = recipe_;
  recipe.batch = batch;
  CountedGroup group = check.group;
  if (check.in_turn) {  // check() has counted all ranks together; one of them alone computes as much
    recipe.batch.global = (batch.global + check.ranks - 1) / check.ranks;
    group = {check.group.device};
  }
  return count_rank(recipe, outline_.batch, group).pass.token_flops();
}

MemoryCheck MemoryPlanner::check(const BatchConfig& batch) const {
  Recipe recipe = recipe_;
  recipe.batch = batch;
  return check_memory(recipe, outline_, per_node_);
}

// A batcher that accepts only its own text cannot be asked before the data is open: then there is no estimate. Other
// errors, also those of plugins, are reported where they occur in the run.
std::optional<MemoryCheck> require_memory(const Recipe& r, Communicator& comm) {
  auto check = comm.once<std::optional<MemoryCheck>>([&]() -> std::optional<MemoryCheck> {
    try {
      return MemoryPlanner(r, comm.size(), comm.nodes().per_node()).check(r.batch);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  });
  if (check) judge(r, *check, comm.rank() == 0);
  return check;
}

PreflightChoice choose_preflight(const Recipe& recipe, const std::optional<MemoryCheck>& check, int64_t steps,
                                 bool resumed) {
  if (recipe.train.preflight != "auto")
    return {recipe.train.preflight == "true", str("train.preflight is ", recipe.train.preflight)};
  if (resumed) return {false, "the run is resumed"};
  if (steps > 0 && steps < kPreflightSteps) return {false, str("the run has fewer than ", kPreflightSteps, " steps")};
  if (!check || check->allowed(recipe) == 0) return {true, "the memory of this run or of the machine is unknown"};
  const auto part = static_cast<double>(check->machine) / static_cast<double>(check->allowed(recipe));
  const bool on = part > kPreflightPart;
  const std::string quarter = str(std::llround(100 * kPreflightPart), " % of the memory");
  return {on, str("the estimate, ", bytes_text(check->machine), ", is ", on ? "above " : "at most ", quarter)};
}

std::string describe(const Rehearsal& r) {
  return str("step ", r.batch.step + 1, " (", r.batch.shape, ") took ", format("%.3g", r.seconds), " s; peak memory ",
             peak_text(r.memory));
}

void preflight(Session& s, int64_t from, const std::optional<MemoryCheck>& check) {
  const int64_t optimizer = s.memory().current[static_cast<size_t>(MemClass::optimizer)];
  const int64_t cap = check ? check->cap(check->allowed(s.recipe), optimizer) : 0;
  const Rehearsal r = rehearse(s, largest_batch(s, from), cap);
  if (r.failure.empty()) {
    if (s.leads()) log_info(str("preflight: ", describe(r)));
    return;
  }
  const char* const key = s.sub_batches() ? "batch.micro_tokens" : "batch.micro";
  throw OutOfMemory(str("[memory] preflight: out of memory in the largest batch of the epoch, that of step ",
                        r.batch.step + 1, " (", r.batch.shape, "): ", r.failure, ". ", key,
                        " divides a batch into smaller passes with the same results up to rounding, and "
                        "batch.fit=memory chooses its value"));
}

}  // namespace lmx::app
