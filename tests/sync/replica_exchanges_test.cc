// Exchanges of values beside steps: what waits for what, and which times count.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "conformance/sync.h"
#include "lmx/replica_strategy.h"
#include "sync/group.h"
#include "train/replicas.h"

namespace lmx::sync_test {
namespace {

const std::vector<ParameterSpec> kParts{{"matrix", {4, 3}, {"normal", 1}}, {"vector", {5}, {"normal", 1}}};

// A rank whose exchanges may run in parallel with its steps.
class OverlappingRank final : public Communicator {
 public:
  OverlappingRank() : Communicator(Allocator::cpu()) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool overlaps() const override { return true; }

 private:
  Tensor do_all_gather(const Tensor& own, const RankRows&) override { return own; }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows&, const RankRows&) override { return {own}; }
  Tensor do_broadcast(const Tensor& t, int) override { return t; }
  void do_barrier() override {}
};

// Two fragments, whose exchanges take at least kExchange each.
class SlowStrategy final : public ReplicaStrategy {
 public:
  static constexpr std::chrono::milliseconds kExchange{20};
  SlowStrategy(SyncEnv env, int64_t delay) : ReplicaStrategy(std::move(env)), delay_(delay) {}
  std::vector<std::vector<std::string>> fragments() const override { return {{"matrix"}, {"vector"}}; }
  Rhythm rhythm(int64_t fragment) const override { return {4, fragment, delay_}; }
  Tensor exchange(Context&, Fragment& f) override {
    std::this_thread::sleep_for(kExchange);
    return f.own;
  }
  Merged merge(Context&, Fragment&, const Tensor& received) override { return {received, received}; }

 private:
  int64_t delay_;
};

// A rank with a strategy.
class RankAlone {
 public:
  explicit RankAlone(std::unique_ptr<ReplicaStrategy> strategy) {
    ctx = comm::rank_context(comm_);
    for (const ParameterSpec& spec : kParts) anchors.add(ctx, spec, RandomKey(4));
    own = anchors.copy(ctx);
    make_group(1);  // finds the plugins
    rule_ = {"all", kParts, &Registry::instance().find(PluginKind::sync, "diloco"), std::move(strategy)};
    replicas = std::make_unique<Replicas>(std::vector<const BoundRule*>{&rule_}, anchors, own, nullptr, true);
  }
  Context ctx;
  ParameterStore anchors, own;
  std::unique_ptr<Replicas> replicas;

 private:
  OverlappingRank comm_;
  BoundRule rule_;
};

const SyncEnv kAlone{"all", kParts, 0, 1, RandomKey(1)};

// The times after each of eight steps, or those of all together if there is a delay, with exchanges after steps 4, 5
// and 8. At the second one, ranks meet for kMeeting.
std::vector<CommTimes> times_of_exchanges(int64_t delay) {
  constexpr std::chrono::milliseconds kMeeting{10};
  RankAlone rank(std::make_unique<SlowStrategy>(kAlone, delay));
  std::vector<CommTimes> times;
  for (int step = 1; step <= 8; ++step) {
    rank.replicas->after_step(rank.ctx, step, 100, [&] {
      if (step == 5) std::this_thread::sleep_for(kMeeting);
    });
    if (delay > 0 && step < 8) continue;
    rank.replicas->finish_exchanges();
    times.push_back(rank.replicas->take_times());
  }
  return times;
}

TEST(Replicas, CountTheTimeOfExchangesAndOfMeetings) {
  const std::vector<CommTimes> times = times_of_exchanges(0);
  for (const size_t idle : {0u, 2u, 5u, 6u}) EXPECT_EQ(times[idle].busy + times[idle].exposed, 0) << idle;
  for (const auto& [step, least] : {std::pair<size_t, double>{3, 0.02}, {4, 0.03}}) {
    EXPECT_GE(times[step].busy, least);
    EXPECT_GE(times[step].exposed, times[step].busy);  // the rank waits for all of it
  }
}

// The next exchange may begin before the times of an earlier one are taken.
TEST(Replicas, CountTheTimeOfExchangesBesideSteps) {
  const std::vector<CommTimes> times = times_of_exchanges(3);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_GE(times[0].busy, 0.07);
}

// Its exchange ends only when the next step has begun, or after some seconds.
class WaitingStrategy final : public ReplicaStrategy {
 public:
  using ReplicaStrategy::ReplicaStrategy;
  Rhythm rhythm(int64_t) const override { return {4, 0, 2}; }
  Tensor exchange(Context&, Fragment& f) override {
    ran_beside = next_step.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    return f.own;
  }
  Merged merge(Context&, Fragment&, const Tensor& received) override { return {received, received}; }

  std::promise<void> next_step;
  bool ran_beside = false;
};

TEST(Replicas, AnExchangeWithADelayRunsInParallelWithTheNextSteps) {
  auto strategy = std::make_unique<WaitingStrategy>(kAlone);
  WaitingStrategy& waiting = *strategy;
  RankAlone rank(std::move(strategy));
  const auto of = [](ParameterStore& params) { return params.at("matrix").value().values<float>(); };
  std::vector<float> sent;
  for (int step = 1; step <= 6; ++step) {
    if (step == 5) waiting.next_step.set_value();
    for (float& v : of(rank.own)) v += static_cast<float>(step);
    rank.own.at("matrix").changed();
    rank.replicas->after_step(rank.ctx, step, 8);
    if (step == 4) sent.assign(of(rank.own).begin(), of(rank.own).end());
    EXPECT_EQ(rank.replicas->exchanging(), step == 4 || step == 5) << step;
  }
  EXPECT_TRUE(waiting.ran_beside);
  for (ParameterStore* params : {&rank.own, &rank.anchors})
    EXPECT_EQ(std::vector<float>(of(*params).begin(), of(*params).end()), sent);
}

}  // namespace
}  // namespace lmx::sync_test
