// The schedule of a step: exchanges beside backward, one after the other, and the wait for the slowest rank.
#include <algorithm>
#include <cmath>

#include "app/plan/divided.h"
#include "app/plan/step.h"
#include "app/plan/work.h"
#include "lmx/error.h"
#include "test.h"

namespace lmx_test {
namespace {

using namespace lmx::app::plan;

Work work_of(double forward, double backward, double update, int64_t passes = 1) {
  Work w;
  w.passes = passes;
  w.forward_s = forward;
  w.backward_s = backward;
  w.update_s = update;
  return w;
}

TEST(PlanStep, ExchangesWaitForTheirGradientsAndForEachOther) {
  const Work w = work_of(1, 2, 0.5);
  // Ready at 1.5, 1.6 and 3; the second waits for the first, the third begins when it is ready.
  const std::vector<UnitWork> units{{0.5, 0.3, 0.1}, {0.6, 0.2, 0}, {2, 0.7, 0}};
  const StepTime t = step_time(w, units, 4, {}, true);
  EXPECT_NEAR(t.comm_s, 1.3, 1e-12);
  EXPECT_NEAR(t.exposed_s, 0.7, 1e-12);
  EXPECT_NEAR(t.hidden_s(), 0.6, 1e-12);
  EXPECT_NEAR(t.step_s(), 3 + 0.7 + 0.5, 1e-12);
}

TEST(PlanStep, AQueueThatIsLongerThanBackwardIsExposed) {
  const std::vector<UnitWork> units{{0.5, 3, 0}, {2, 1, 0}};
  const StepTime t = step_time(work_of(1, 2, 0), units, 4, {}, true);
  EXPECT_NEAR(t.exposed_s, 1.5 + 3 + 1 - 3, 1e-12);
}

TEST(PlanStep, WithoutOverlapAllIsExposed) {
  const std::vector<UnitWork> units{{0.5, 0.3, 0}, {2, 0.2, 0}};
  const StepTime t = step_time(work_of(1, 2, 0), units, 4, {}, false);
  EXPECT_NEAR(t.exposed_s, 0.5, 1e-12);
  EXPECT_NEAR(t.hidden_s(), 0, 1e-12);
}

// A rank that shares its core: the exchange takes away what it needs, as far as backward is still running.
TEST(PlanStep, ExchangesThatNeedTheSameCoreDelayBackward) {
  // The first unit is within backward. Its 0.2 s put off the second gradient; that exchange is after backward.
  const std::vector<UnitWork> units{{0.5, 0.3, 0.1, 0, 0.2}, {2, 0.7, 0, 0, 0.5}};
  const StepTime t = step_time(work_of(1, 2, 0), units, 4, {}, true);
  EXPECT_NEAR(t.delay_s, 0.2, 1e-12);
  EXPECT_NEAR(t.compute_s, 3.2, 1e-12);
  EXPECT_NEAR(t.exposed_s, 0.7, 1e-12);
  // Half of an exchange from 2.5 to 3.5 s is beside backward.
  EXPECT_NEAR(step_time(work_of(1, 2, 0), {{1.5, 1, 0, 0, 0.4}}, 4, {}, true).delay_s, 0.2, 1e-12);
  EXPECT_EQ(step_time(work_of(1, 2, 0), units, 4, {}, false).delay_s, 0);
  // Own work of 0.6 s takes 1.2 s beside backward: 1 s of it until the end of backward, the last sixth alone.
  EXPECT_NEAR(step_time(work_of(1, 2, 0), {{1, 0, 0.6, 1, 0}}, 4, {}, true).exposed_s, 0.1, 1e-12);
}

// Two units of one second each in forward and backward, which are gathered in half a second: only the first gather is
// exposed. Backward completes the gradients of the first unit after one second.
TEST(PlanStep, GathersRunBesideTheUnitBeforeThem) {
  const auto planned = [](double gather_s, double passes, bool overlap) {
    Work w = work_of(2, 2, 0);
    w.passes = passes;
    std::vector<UnitWork> units;
    add_gathers(units, {{{0, gather_s}, 1}, {{0, gather_s}, 2}}, w, overlap);
    return step_time(w, units, 4, {}, overlap);
  };
  EXPECT_NEAR(planned(0.5, 1, true).exposed_s, 0.5, 1e-9);
  EXPECT_NEAR(planned(0.5, 1, true).comm_s, 2, 1e-9);
  EXPECT_NEAR(planned(0.5, 3, true).exposed_s, 1.5, 1e-9);
  EXPECT_NEAR(planned(0.5, 3, true).comm_s, 6, 1e-9);
  EXPECT_NEAR(planned(0.5, 1, false).exposed_s, 2, 1e-9);
  // Each gather but the first one is beside a second of computation.
  EXPECT_NEAR(planned(3, 1, true).exposed_s, 3 + 3 * 2, 1e-9);
  EXPECT_NEAR(planned(3, 1, true).compute_s, 4, 1e-9);
}

// The sum of the gradients of a unit waits for the gather that was begun before it.
TEST(PlanStep, GathersShareTheQueueWithGradients) {
  const Work w = work_of(2, 2, 0);
  std::vector<UnitWork> units{{1, 0.5}, {2, 0.5}};
  add_gathers(units, {{{0, 0.5}, 1}, {{0, 0.5}, 2}}, w, true);
  ASSERT_EQ(units.size(), 6u);
  const StepTime t = step_time(w, units, 4, {}, true);
  EXPECT_NEAR(t.exposed_s, 0.5 + 0.5, 1e-9);  // the first gather, and the last gradients
  EXPECT_NEAR(t.comm_s, 3, 1e-9);
}

// Own part of 100 bytes of 400 in each of three units; copies take as much again.
TEST(PlanDivided, TheRankKeepsItsPartAndTwoUnits) {
  lmx::app::RankCount count;
  for (const int64_t part : {100, 300, 200})
    count.units.push_back({.rule = "all", .bytes = {.sent = 3 * part, .received = 3 * part}, .after_update = true});
  count.units.push_back({.rule = "rest", .bytes = {.sent = 999, .received = 999}, .after_update = true});
  for (lmx::MemoryStats* stats : {&count.memory.training, &count.memory.evaluation}) {
    stats->peak[static_cast<size_t>(lmx::MemClass::parameters)] = 2 * 2400;
    stats->total_peak = 10'000;
  }
  divide_values(count, {"all"}, 4, 2400);
  EXPECT_EQ(count.memory.of(lmx::MemClass::parameters), 600 + 2 * (1200 + 800));
  EXPECT_EQ(count.memory.total(), 10'000 - (2 * 2400 - 600 - 2 * 2000));
}

TEST(PlanStep, OnlyTheLastBackwardHidesExchanges) {
  const std::vector<UnitWork> units{{0.5, 1, 0}};
  const StepTime t = step_time(work_of(1, 2, 0, 16), units, 4, {}, true);
  EXPECT_NEAR(t.compute_s, 48, 1e-12);
  EXPECT_NEAR(t.exposed_s, 0, 1e-12);
}

// Means of the largest of n standard normal values (Harter 1961, table 1).
TEST(PlanStep, TheSlowestRankFollowsOrderStatistics) {
  for (const auto& [n, mean] : {std::pair{2, 0.56419}, {3, 0.84628}, {10, 1.53875}, {100, 2.50759}})
    EXPECT_NEAR(Spread{0.2}.slowest(n, 1), 1 + 0.2 * mean, 2e-5) << n;
  EXPECT_EQ(Spread{0.2}.slowest(1, 1), 1);
  EXPECT_EQ(Spread{0}.slowest(100, 1), 1);
  // The sum of 16 passes varies a quarter as much, relative to its mean.
  EXPECT_NEAR(Spread{0.2}.slowest(10, 16), 1 + 0.05 * 1.53875, 1e-5);
}

TEST(PlanStep, WaitingIsPartOfTheComputation) {
  const StepTime t = step_time(work_of(1, 2, 0.5), {}, 10, Spread{0.2}, true);
  EXPECT_NEAR(t.wait_s, 3 * 0.2 * 1.53875, 1e-4);
  EXPECT_NEAR(t.compute_s, 3.5 + t.wait_s, 1e-12);
}

// Times of collectives, against a count of what each rank sends in each round, and against the formulas of rings.

LinksConfig links_of(int64_t ranks_per_node, double node, double network, bool shared = false) {
  LinksConfig links;
  links.ranks_per_node = ranks_per_node;
  links.node = {node, 0};
  links.network = {network, 0};
  links.shared = shared;
  return links;
}

// Bytes that go to all other ranks alike, in two collectives.
Sent evenly(int64_t bytes, int ranks, const LinksConfig& links) {
  const int64_t inner = std::min<int64_t>(links.ranks_per_node, ranks);
  return {bytes, bytes * (ranks - inner) / std::max(1, ranks - 1), 2};
}
Transfer even_transfer(int64_t bytes, int ranks, const LinksConfig& links, Algorithm algorithm) {
  return transfer(evenly(bytes, ranks, links), ranks, links, algorithm);
}

struct Counted {
  double seconds = 0;
  double network_bytes = 0;  // of all ranks together
};

// Rank r sends `part` bytes to rank r + s in round s. A round ends when its slowest link has ended.
Counted count_rounds(double part, int ranks, const LinksConfig& links) {
  const auto node_of = [&](int r) { return r / static_cast<int>(links.ranks_per_node); };
  Counted all;
  for (int s = 1; s < ranks; ++s) {
    std::vector<double> out(static_cast<size_t>(ranks)), inside(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      const bool crosses = node_of(r) != node_of((r + s) % ranks);
      (crosses ? out : inside)[static_cast<size_t>(node_of(r))] += part;
      if (crosses) all.network_bytes += part;
    }
    double slowest = 0;
    for (int n = 0; n < ranks; ++n) {
      const auto i = static_cast<size_t>(n);
      slowest = std::max(slowest, links.network.seconds(out[i]));
      if (inside[i] > 0) slowest = std::max(slowest, links.node.seconds(part));
    }
    all.seconds += slowest;
  }
  return all;
}

TEST(PlanWire, PairwiseIsWhatEachRoundSends) {
  for (const auto& [ranks, per_node] :
       {std::pair{2, 1}, {2, 2}, {4, 2}, {8, 8}, {12, 4}, {16, 8}, {24, 8}, {9, 8}, {12, 8}, {20, 8}, {7, 3}}) {
    const LinksConfig links = links_of(per_node, 10, 2);
    const int64_t sent = 1'000'000 * (ranks - 1);
    const Transfer t = even_transfer(sent, ranks, links, Algorithm::pairwise);
    const Counted counted = count_rounds(1e6, ranks, links);
    EXPECT_NEAR(t.seconds, counted.seconds, 1e-12) << ranks << " ranks, " << per_node;
    EXPECT_NEAR(static_cast<double>(t.network_bytes), counted.network_bytes / ranks, 1) << ranks;
    EXPECT_EQ(t.node_bytes + t.network_bytes, sent);
  }
}

TEST(PlanWire, OneRankOfEachNodeSendsTheBytesOfARing) {
  const LinksConfig links = links_of(4, 10, 2);
  EXPECT_EQ(even_transfer(8'000'000, 16, links, Algorithm::ring).network_bytes, 2'000'000);
  EXPECT_EQ(even_transfer(8'000'000, 4, links, Algorithm::ring).network_bytes, 0);
  EXPECT_THROW(even_transfer(8, 6, links, Algorithm::hierarchical), lmx::UserError);
}

TEST(PlanWire, RingIsLimitedByTheSlowestLink) {
  const LinksConfig links = links_of(4, 10, 2);
  EXPECT_NEAR(even_transfer(8'000'000, 4, links, Algorithm::ring).seconds, 8e6 / 10e9, 1e-12);
  EXPECT_NEAR(even_transfer(8'000'000, 8, links, Algorithm::ring).seconds, 8e6 / 2e9, 1e-12);
  const LinksConfig fast = links_of(4, 1, 2);
  EXPECT_NEAR(even_transfer(8'000'000, 8, fast, Algorithm::ring).seconds, 8e6 / 1e9, 1e-12);
}

TEST(PlanWire, AHierarchySendsALNthOfTheBytesBetweenNodes) {
  const LinksConfig links = links_of(4, 10, 2);
  const int64_t n = 64'000'000, sent = 2 * n * 15 / 16;  // a sum of n bytes on 16 ranks
  const Transfer pairwise = even_transfer(sent, 16, links, Algorithm::pairwise);
  const Transfer t = even_transfer(sent, 16, links, Algorithm::hierarchical);
  EXPECT_NEAR(static_cast<double>(pairwise.network_bytes) / 4, static_cast<double>(t.network_bytes), 2);
  // Inside a node 2 (L-1)/L n; a node sends 2 (M-1)/M n for its L ranks, with M nodes.
  const double inside = 2.0 * 3 / 4 * static_cast<double>(n), across = 2.0 * 3 / 4 * static_cast<double>(n);
  EXPECT_NEAR(t.seconds, inside / 10e9 + across / 2e9, 1e-9);
  EXPECT_LT(t.seconds, pairwise.seconds);
}

// Two levels of a strategy: 2 (L-1)/L n inside a node of L ranks, 2 (M-1)/G n to the M - 1 other nodes.
TEST(PlanWire, AStrategyOfTwoLevelsSendsWhatItStates) {
  const LinksConfig links = links_of(4, 10, 2);
  const int64_t n = 64'000'000, inside = 2 * n * 3 / 4, across = 2 * n * 3 / 16;
  const Transfer t = transfer({inside + across, across, 4}, 16, links, Algorithm::pairwise);
  EXPECT_EQ(t.network_bytes, across);
  EXPECT_EQ(t.node_bytes, inside);
  EXPECT_NEAR(t.seconds, static_cast<double>(inside) / 10e9 + 4 * static_cast<double>(across) / 2e9, 1e-9);
}

TEST(PlanWire, ASharedLinkIsDividedByItsRanks) {
  const double alone = even_transfer(3'000'000, 4, links_of(4, 10, 2), Algorithm::pairwise).seconds;
  const double shared = even_transfer(3'000'000, 4, links_of(4, 10, 2, true), Algorithm::pairwise).seconds;
  EXPECT_NEAR(shared, 4 * alone, 1e-12);
}

// A rank's link carries each byte to the memory of its host and from that of the other; the network's time adds to it.
TEST(PlanWire, StagedDataIsCopiedOneAfterTheOther) {
  LinksConfig links = links_of(4, 10, 2);
  links.staged = true;
  EXPECT_NEAR(even_transfer(8'000'000, 4, links, Algorithm::ring).seconds, 2 * 8e6 / 10e9, 1e-12);
  EXPECT_NEAR(even_transfer(8'000'000, 8, links, Algorithm::ring).seconds, 8e6 / 2e9 + 2 * 8e6 / 10e9, 1e-12);
  // Three rounds of 1 MB between nodes of one rank.
  links = links_of(1, 10, 2);
  links.staged = true;
  EXPECT_NEAR(even_transfer(3'000'000, 4, links, Algorithm::pairwise).seconds, 3 * (1e6 / 2e9 + 2 * 1e6 / 10e9), 1e-12);
}

TEST(PlanWire, LatencyCountsTheRoundsOfEachCollective) {
  LinksConfig links = links_of(8, 1e6, 1e6);
  links.node.latency_us = 3;
  links.network.latency_us = 10;
  const auto rounds = [&](int ranks, Algorithm a) { return even_transfer(0, ranks, links, a).seconds * 1e6; };
  EXPECT_NEAR(rounds(8, Algorithm::pairwise), 2 * 7 * 3, 1e-9);
  EXPECT_NEAR(rounds(16, Algorithm::pairwise), 2 * 15 * 10, 1e-9);
  EXPECT_NEAR(rounds(16, Algorithm::ring), 2 * 15 * 10, 1e-9);
  EXPECT_NEAR(rounds(16, Algorithm::tree), 2 * 4 * 10, 1e-9);
  EXPECT_NEAR(rounds(16, Algorithm::hierarchical), 2 * (7 * 3 + 1 * 10), 1e-9);
}

// For every size and number of ranks, the automatic choice takes the least time of all.
TEST(PlanWire, AutomaticIsTheFastestForEachMessage) {
  LinksConfig links = links_of(8, 100, 10);
  links.node.latency_us = 3;
  links.network.latency_us = 10;
  for (const int ranks : {2, 8, 12, 16, 64, 10'000}) {
    for (const int64_t bytes : {1'000, 1'000'000, 1'000'000'000}) {
      double least = INFINITY;
      for (const Algorithm a : {Algorithm::pairwise, Algorithm::ring, Algorithm::tree, Algorithm::hierarchical})
        if (a != Algorithm::hierarchical || ranks % 8 == 0 || ranks < 8)
          least = std::min(least, even_transfer(bytes, ranks, links, a).seconds);
      EXPECT_EQ(even_transfer(bytes, ranks, links, Algorithm::automatic).seconds, least) << ranks << ' ' << bytes;
    }
  }
  // Few bytes on many ranks: log2 G latencies, not G - 1.
  EXPECT_EQ(even_transfer(1'000, 10'000, links, Algorithm::automatic).seconds,
            even_transfer(1'000, 10'000, links, Algorithm::tree).seconds);
  EXPECT_EQ(algorithm_named("auto"), Algorithm::automatic);
}

// Encoding and headers leave a part of the bandwidth.
TEST(PlanWire, OverheadTakesItsPartOfTheBandwidth) {
  LinksConfig links = links_of(4, 10, 2);
  const double without = even_transfer(8'000'000, 8, links, Algorithm::ring).seconds;
  links.network.overhead = 0.2;
  EXPECT_NEAR(even_transfer(8'000'000, 8, links, Algorithm::ring).seconds, without / 0.8, 1e-12);
}

TEST(PlanWire, OneRankSendsNothing) {
  EXPECT_EQ(even_transfer(0, 1, links_of(1, 1, 1), Algorithm::ring).seconds, 0);
}

TEST(PlanWire, UnknownCollectivesNameTheNearest) {
  EXPECT_THAT(user_error([] { algorithm_named("rong"); }), Names("'rong'", "'ring'"));
}

}  // namespace

}  // namespace lmx_test
