// Runs the checks of sync strategies on groups of virtual ranks and reports them.
#include "conformance/sync.h"

#include <functional>

#include "backend/counting/device.h"
#include "recipe/comm_config.h"
#include "recipe/sync_rules.h"

namespace lmx::app::conformance {
namespace {

class SyncCheck {
 public:
  SyncCheck(Report& report, const Subject& s) : report_(report), s_(s) {}

  void run() {
    for_groups([&](int ranks, int per_node) { observe(ranks, per_node); });
    if (seen_.server) {
      report_.run("ranks in step", []() -> std::string {
        throw Skipped(
            "an asynchronous strategy, which has no reduce(): try it in a recipe, `lmx run recipes/quickstart.yaml "
            "--ranks 4`");
      });
      return;
    }
    if (seen_.replica) return conclude_replicas();
    if (seen_.shard) return conclude_shards();
    conclude("units", "every parameter belongs to one unit");
    conclude("ledger", "the ranks receive as many bytes as they send, on 1 to 4 ranks and 2 nodes");
    conclude("counted", "a plan counts the bytes and the collectives of these steps");
    conclude("ranks", "the same bits on all ranks");
    conclude("determinism", "a second run gives the same bits");
    conclude("state", seen_.kept ? str(seen_.kept, " tensors saved and loaded; the run continues in the same bits")
                                 : "no tensors to save; a new run continues in the same bits");
    conclude("rows", "each row once in a table's gradient");
    if (seen_.direction)
      skip_direction("sum");
    else
      conclude("sum", sum_text());
    report_.run("discard", [&] {
      on_all_groups([&](Communicator& comm, Observation& seen) { observe_discard(comm, s_, seen); });
      return result("discard", "a step after a discarded one equals the step alone");
    });
    report_.run("overflow", [&] {
      on_all_groups([&](Communicator& comm, Observation& seen) { observe_overflow(comm, s_, seen); });
      return result("overflow", "every rank sees a value of one rank that is not finite; discard() removes it");
    });
    if (seen_.direction) {
      skip_direction("rescale");
      skip_direction("mean");
      return;
    }
    report_.run("rescale", [&] {
      on_all_groups([&](Communicator& comm, Observation& seen) { observe_rescale(comm, s_, seen); });
      return result("rescale", "after rescale(2), doubled gradients give the doubled result");
    });
    report_.run("mean", [&] { return mean(); });
  }

 private:
  void skip_direction(const char* check) {
    report_.run(check, []() -> std::string { throw Skipped("the result is a direction, not a gradient"); });
  }

  void conclude_replicas() {
    conclude("ledger", "the ranks receive as many bytes as they send, on 1 to 4 ranks and 2 nodes, at exchanges only");
    conclude("counted", "a plan counts the bytes and the collectives of these exchanges");
    conclude("ranks", "the same anchors on all ranks");
    conclude("determinism", "a second run gives the same bits");
    conclude("state", "saved between two synchronisations and loaded; the run continues in the same bits");
    conclude("rest", "values that no rank has changed are unchanged");
  }

  void conclude_shards() {
    conclude("ledger", "the ranks receive as many bytes as they send, on 1 to 4 ranks and 2 nodes");
    conclude("counted", "a plan counts the bytes and the collectives of these steps");
    conclude("ranks", "the same values on all ranks");
    conclude("determinism", "a second run gives the same bits");
    report_.run("update", [&]() -> std::string {
      if (s_.approximate) throw Skipped("--approximate: it may differ from that of one rank");
      return result("update", "the bits of a rank that makes the whole update: adamw, with a clipped norm");
    });
    conclude("divided", str("no state is kept twice; the largest part is ", seen_.distances["share"], " of the mean"));
    conclude("state", str(seen_.kept, " tensors saved and loaded; the run continues in the same bits"));
  }

  static void for_groups(const std::function<void(int ranks, int per_node)>& body) {
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) body(ranks, 0);
    body(kMostRanks, kMostRanks / 2);
  }

  using OnRank = std::function<void(Communicator&, Observation&)>;
  static void on_group(int per_node, std::vector<Observation>& by_rank, const OnRank& body) {
    const std::string group = str("{name: virtual, ranks: ", by_rank.size(), ", ranks_per_node: ", per_node, "}");
    make_comm_group(parse_yaml(group, "check"), "comm", {1, {}})->run([&](Communicator& comm) {
      body(comm, by_rank[static_cast<size_t>(comm.rank())]);
    });
  }

  void on_all_groups(const OnRank& body) {
    for_groups([&](int ranks, int per_node) {
      std::vector<Observation> by_rank(static_cast<size_t>(ranks));
      on_group(per_node, by_rank, body);
      for (const Observation& own : by_rank) seen_.merge(own);
    });
  }

  // The steps on ranks that compute, and the same steps on a device that counts.
  void observe(int ranks, int per_node) {
    std::vector<Observation> by_rank(static_cast<size_t>(ranks));
    on_group(per_node, by_rank, [&](Communicator& comm, Observation& seen) { seen = observe_steps(comm, s_); });
    if (!by_rank[0].server) {
      const auto device = CountingDevice::make(s_.device.kind);
      const Subject counted{s_.plugin, s_.config, s_.approximate, device->device()};
      on_group(per_node, by_rank, [&](Communicator& comm, Observation& seen) { observe_counted(comm, counted, seen); });
    }
    for (const Observation& own : by_rank) seen_.merge(own);
  }

  std::string result(const std::string& check, const std::string& passed) const {
    const auto found = seen_.findings.find(check);
    if (found != seen_.findings.end()) fail(found->second);
    return passed;
  }
  void conclude(const std::string& check, const std::string& passed) {
    report_.run(check, [&] { return result(check, passed); });
  }

  std::string sum_text() const {
    constexpr double kExact = 1e-5;
    const double apart = seen_.distances.at("sum");
    if (apart <= kExact) return "the exact sum, on 1 to 4 ranks";
    if (!s_.approximate) return str("within the rounding of the codec, ", apart, " of the sum's size");
    return str("within ", apart, " of the sum's size over ", kSteps,
               " steps; --approximate allows any difference here, the mean is checked below");
  }

  std::string mean() {
    if (!s_.approximate) throw Skipped("every step gives the sum");
    on_all_groups([&](Communicator& comm, Observation& seen) { observe_mean(comm, s_, seen); });
    return result("mean", str("--approximate: a step may differ from the sum, the mean of ", kMeanSteps, " steps by ",
                              kMeanBound, " of its size; it differs by ", seen_.distances["mean"]));
  }

  static constexpr int kMostRanks = 4;

  Report& report_;
  const Subject& s_;
  Observation seen_;
};

}  // namespace

void check_sync(Report& report, const Subject& subject) {
  if (subject.device.kind != Device::Kind::cpu)
    report.run("device", [&] {
      return str("from here on the ranks share ", name_of(subject.device), ", ",
                 describe(cuda_device_info(subject.device.index)));
    });
  report.run("construction", [&] {
    const SyncEnv env{"check", parameters(), 0, 1, RandomKey(3)};
    make_sync_rule(subject.plugin, subject.config, "sync.check", env);
    return std::string("for tables and matrices");
  });
  if (report.failures() > 0) return;
  try {
    SyncCheck(report, subject).run();
  } catch (const std::exception& e) {
    const std::string text = e.what();
    report.run("ranks in step", [&]() -> std::string { fail(text); });
  }
}

}  // namespace lmx::app::conformance
