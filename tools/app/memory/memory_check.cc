#include "app/memory/memory_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "backend/cuda.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "recipe/comm_config.h"

namespace lmx {

using namespace train;

namespace {

// Processes can be on any machine of a cluster. If a launcher has started this process, it has set how many of them are
// here.
int ranks_here(const Recipe& r, int ranks) {
  return in_one_process(r.comm, "comm") ? ranks : std::min(ranks, detect_launch().local_size);
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
    check.device_line = str("device ", name_of(device), " (", describe(info), ") with ", bytes_text(info.memory), "\n");
  } catch (const UserError& e) {  // jobs of a sweep may run on another machine, which has the device
    check.missing_device = e.what();
  }
}

}  // namespace

std::string MemoryCheck::there_text() const {
  const bool device = there.limit.starts_with("cuda:");
  const std::string who = there.limit.empty() ? "this machine has " : str(there.limit, device ? " has " : " allows ");
  return str(who, bytes_text(there.bytes));
}

std::string MemoryCheck::missing() const {
  if (there.bytes == 0 || machine <= there.bytes) return {};
  const std::string who = here > 1 ? str(" for ", here, " ranks on this machine") : ranks > 1 ? " for one rank" : "";
  return str(bytes_text(machine), who, ", and ", there_text());
}

std::string MemoryCheck::largest() const {
  auto classes = rank.classes();
  std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return str(classes[0].first, ' ', bytes_text(classes[0].second), ", ", classes[1].first, ' ',
             bytes_text(classes[1].second), ranks > 1 ? " of each rank" : "");
}

MemoryCheck check_memory(const Recipe& r, const Outline& o) {
  MemoryCheck check;
  check.ranks = o.shares.ranks;
  const std::vector<UnitPlan> exchange = exchange_of(*o.sync, o.network, o.shares);
  check.rank = rank_memory(r, o.network, o.shares, communication_bytes(exchange, o.shares.ranks));
  // Ranks in one process share the parameters and the state of the optimizer.
  check.here = ranks_here(r, o.shares.ranks);
  if (check.rank.in_turn) check.pairs = o.sync->pair_bytes() * o.shares.ranks * o.shares.ranks;
  check.machine = check.rank.in_turn ? check.rank.shared() + check.here * check.rank.own() + check.pairs
                                     : check.here * check.rank.total();
  find_memory(r, check);
  return check;
}

namespace {

constexpr const char* kRemedy =
    "A smaller batch.micro or batch.global reduces the activations, a smaller model everything else";

void judge(const Recipe& r, const MemoryCheck& check, bool warns) {
  const double budget = r.memory.budget * 1e9;
  if (budget > 0 && static_cast<double>(check.machine) > budget)
    throw UserError(str("[memory] the estimate is ", bytes_text(check.machine), ", more than memory.budget, ",
                        bytes_text(std::llround(budget)), ". The largest items: ", check.largest(), ". ", kRemedy));
  if (const std::string missing = check.missing(); warns && !missing.empty())
    log_warn(str("[memory] the estimate is ", missing, ". The largest items: ", check.largest(), ". ", kRemedy,
                 ". memory.budget=N (GB) makes this an error"));
}

MemoryCheck estimate_of(const Recipe& r, const Communicator& comm) {
  return check_memory(r, outline_of(r, comm.size(), comm.nodes().per_node()));
}

}  // namespace

// A batcher that accepts only its own text cannot be asked before the data is open: then there is no estimate. Other
// errors are reported where they occur.
void require_memory(const Recipe& r, Communicator& comm) {
  const auto check = comm.once<std::optional<MemoryCheck>>([&]() -> std::optional<MemoryCheck> {
    try {
      return estimate_of(r, comm);
    } catch (const UserError&) {
      return std::nullopt;
    }
  });
  if (check) judge(r, *check, comm.rank() == 0);
}

}  // namespace lmx
