// Plans of asynchronous workers: their events, and the command.
#include "app/plan/step.h"

#include <cmath>

#include "lmx/error.h"
#include "plan_command.h"
#include "sync/server/worker_clock.h"

namespace lmx_test {
namespace {

using namespace lmx::app::plan;

WorkerTimes even_times(int workers, int64_t steps) {
  return {std::vector(static_cast<size_t>(workers), std::vector<double>(static_cast<size_t>(steps), 1.0)), {}};
}

LinksConfig links_of(int64_t ranks_per_node, bool shared = false) {
  LinksConfig links;
  links.ranks_per_node = ranks_per_node;
  links.shared = shared;
  return links;
}

// A message: seconds on the links of the node, between nodes, and of a shard.
WorkerStep step_of(double compute, const ServerMessage& pull, const ServerMessage& push) {
  WorkerStep step;
  step.compute_s = compute;
  step.pull = pull;
  step.push = push;
  return step;
}

TEST(PlanWorkers, AWorkerWaitsForItsPullAndForTheUpdateBeforeIt) {
  WorkerStep step = step_of(1, {0.2, 0, 0.01}, {0.3, 0, 0.04});
  step.local_s = 0.1;
  const WorkersTime t = simulate_workers(step, even_times(1, 8), links_of(1));
  // The pull waits until the push has arrived (0.3) and is applied (0.04).
  EXPECT_NEAR(t.step_s, 0.3 + 0.04 + 0.01 + 0.2 + 0.1 + 1, 1e-12);
  EXPECT_NEAR(t.exposed_s, t.step_s - 1, 1e-12);
  EXPECT_EQ(t.staleness, 0);
  EXPECT_EQ(t.events, 16);
}

TEST(PlanWorkers, LinksOfTheirOwnDoNotDelayEachOther) {
  const WorkersTime t = simulate_workers(step_of(1, {0.1, 0, 0}, {0.05, 0, 0}), even_times(4, 40), links_of(4));
  EXPECT_NEAR(t.step_s, 1.15, 1e-9);
  EXPECT_NEAR(t.updates_s, 4 / 1.15, 1e-9);
}

// Four workers whose messages take 1 s of a link that they share, in a cycle of 4 s: the link is never idle.
TEST(PlanWorkers, ASharedLinkLimitsTheUpdates) {
  const WorkersTime bus =
      simulate_workers(step_of(0.5, {0.6, 0, 0}, {0.4, 0, 0}), even_times(4, 80), links_of(4, true));
  EXPECT_NEAR(bus.updates_s, 1, 0.02);
  const WorkersTime network = simulate_workers(step_of(0.5, {0, 0.6, 0}, {0, 0.4, 0}), even_times(4, 80), links_of(4));
  EXPECT_NEAR(network.updates_s, 1, 0.02);
  // Two nodes have two such links.
  const WorkersTime two = simulate_workers(step_of(0.5, {0, 0.6, 0}, {0, 0.4, 0}), even_times(4, 80), links_of(2));
  EXPECT_NEAR(two.updates_s, 2, 0.1);
}

TEST(PlanWorkers, ShardsLimitTheUpdates) {
  const WorkersTime t = simulate_workers(step_of(0.5, {0, 0, 0.1}, {0, 0, 0.4}), even_times(8, 80), links_of(1));
  EXPECT_NEAR(t.updates_s, 2, 0.02);
}

// Four ranks keep a quarter of the values each; a server that is no rank sends all of them.
TEST(PlanWorkers, ACentralServerSendsAllValues) {
  WorkerBytes exchange;
  exchange.others.replied = exchange.others.pushed = 3'000'000;  // of 4 MB
  LinksConfig links = links_of(4, true);
  links.node.gb_s = 1;
  DeviceConfig device;
  device.memory_gb_s = 1e6;
  const auto pull_s = [&] { return WorkerStep::of(exchange, 4, device, links, 0).pull.node_s; };
  EXPECT_NEAR(pull_s(), 3e-3, 1e-12);
  links.central_server = true;
  EXPECT_NEAR(pull_s(), 4e-3, 1e-12);
}

TEST(PlanWorkers, ALatencyIsThatOfEachMessage) {
  WorkerStep step = step_of(1, {}, {});
  step.latency_s = 0.01;
  // A question and its answer before a pull and before a push, the request, its reply; the pull waits for the push,
  // whose own latency is shorter than that of the question.
  EXPECT_NEAR(simulate_workers(step, even_times(2, 40), links_of(2)).step_s, 1 + 6 * 0.01, 1e-9);
}

TEST(PlanWorkers, AReplayRepeatsItsOrder) {
  WorkerTimes times = even_times(2, 3);
  for (int step = 0; step < 3; ++step) times.order.insert(times.order.end(), {0, 2, 3, 1});
  const WorkersTime t = simulate_workers(step_of(1, {}, {}), times, links_of(2));
  EXPECT_EQ(t.most_stale, 1);  // worker 1 pushes between each pull and push of worker 0
  EXPECT_NEAR(t.staleness, 0.5, 1e-12);
  EXPECT_EQ(t.events, 12);
}

TEST(PlanWorkers, AReplayHasTheStepsOfItsFile) {
  const lmx_test::TempFolder folder;
  const std::string file = folder.path("schedule.txt");
  lmx::ServerConfig config;
  config.replay = file;
  lmx::write_schedule(file, {0, 2, 1, 0, 1, 3, 0}, 2);  // 2 worker, +1 for a push
  const WorkerTimes times = WorkerTimes::of(config, 2, 100, 1);
  EXPECT_EQ(times.relative[0].size(), 2u);
  EXPECT_EQ(times.relative[1].size(), 1u);
  const WorkersTime t = simulate_workers(step_of(1, {}, {}), times, links_of(2));
  EXPECT_EQ(t.most_stale, 2);
  EXPECT_TRUE(std::isfinite(t.step_s));
  lmx::write_schedule(file, {0, 1, 2}, 2);
  EXPECT_THROW(WorkerTimes::of(config, 2, 100, 1), lmx::UserError);
}

TEST(PlanWorkers, DurationsHaveTheMeanOneAndTheClocksDistribution) {
  lmx::ServerConfig config;
  config.delay.mean = 7;
  config.delay.spread = 0.5;
  const WorkerTimes times = WorkerTimes::of(config, 4, 2'000, 3);
  double sum = 0, squares = 0;
  for (const std::vector<double>& worker : times.relative)
    for (const double d : worker) sum += d, squares += d * d;
  EXPECT_NEAR(sum / 8'000, 1, 1e-9);
  EXPECT_NEAR(squares / 8'000 - 1, 1.2, 0.3);  // exponential: 1, and the speeds of the workers differ
  config.delay.kind = "fixed";
  const std::vector<double> fixed = WorkerTimes::of(config, 4, 2, 3).relative[1];
  EXPECT_EQ(fixed[0], fixed[1]);
}

// Bounds the work of a plan of many workers by counts.
TEST(PlanWorkers, TenThousandWorkersTakeFewEvents) {
  const auto ranks = 10'000;
  const int64_t steps = simulated_steps(ranks);
  const WorkersTime t =
      simulate_workers(step_of(1, {0.1, 0.01, 0}, {0.1, 0.01, 0}), even_times(ranks, steps), links_of(8));
  EXPECT_EQ(t.events, 2 * ranks * steps);
  EXPECT_LE(t.events, 100'000);
  EXPECT_EQ(simulated_steps(1), 2'000);
}

class PlanServer : public PlanCommand {
 protected:
  // Writes tiny.yaml with one rule of `sync:` for all parameters.
  void use_rule(const std::string& rule, const std::string& recipe = kTinyRecipe) const {
    write("tiny.yaml", recipe + "sync: {all: {params: '.*', " + rule + "}}\n");
  }
  // The average and the largest staleness of a run, from the line that it prints at its end.
  std::pair<double, int64_t> staleness_of(const std::string& log) const {
    const Match found = first_match(log, "staleness of updates ([0-9.]+) on average.* ([0-9]+): [0-9]+\n");
    if (found.empty()) {
      ADD_FAILURE() << "no staleness in " << log;
      return {};
    }
    return {std::stod(found[1]), std::stoll(found[2])};
  }
};

// Without time for messages, the order of events is that of a run's simulated clock.
TEST_F(PlanServer, StalenessIsThatOfARun) {
  use_rule("strategy: param_server, delay: {mean: 2, spread: 0.6}");
  ASSERT_THAT(run("three", {"--ranks", "3", "train.ema=0", "train.steps=60", "seed=9"}), Succeeds());
  const auto [mean, most] = staleness_of(read_file(folder_ / "three/log.txt"));
  lmx::ServerConfig config;
  config.delay.mean = 2;
  config.delay.spread = 0.6;
  const WorkersTime t = simulate_workers(step_of(1, {}, {}), WorkerTimes::of(config, 3, 60, 9), links_of(3));
  EXPECT_NEAR(t.staleness, mean, 1e-3);
  EXPECT_EQ(t.most_stale, most);
}

TEST_F(PlanServer, TheTableShowsUpdatesStalenessAndSpeedUp) {
  const Words on{"--machine", "xiao_k40", "--ranks", "1,4", "train.ema=0", "sync=param_server,allreduce"};
  ASSERT_THAT(plan(path("tiny.yaml"), on), Prints("UPDATES/S", "STALENESS", "SPEED-UP", "collectives: auto", "delay"));
  const Json all = rows(path("tiny.yaml"), on);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_NEAR(all[0]["speedup"], 1, 1e-9);
  EXPECT_NEAR(all[0]["staleness_mean"], 0, 1e-9);
  EXPECT_NEAR(all[1]["staleness_mean"], 3, 0.2);
  // Four updates of one worker each are a step.
  EXPECT_NEAR(all[1]["updates_per_s"].get<double>() * all[1]["step_s"].get<double>(), 4, 1e-9);
  // One worker alone is planned from the bytes of one of four, or counted by itself with other words.
  EXPECT_NEAR(all[1]["speedup"].get<double>() / 4, all[1]["efficiency"], 1e-3);
  EXPECT_FALSE(all[2].contains("speedup"));
  const Outcome csv = plan(path("tiny.yaml"), {"--machine", "xiao_k40", "--ranks", "4", "train.ema=0",
                                               "sync=allreduce,param_server", "--out", path("p.csv")});
  EXPECT_THAT(read_file(folder_ / "p.csv"), HasSubstr(",staleness_mean,")) << csv.err;
}

// All rows of the tables are pulled; gradients of words that a worker does not read are not pushed.
TEST_F(PlanServer, SendsTheBytesOfTheLedger) {
  for (const std::string sync : {"strategy: param_server", "strategy: param_server, codec: {kind: one_bit}",
                                 "strategy: sampled_rows, transport: param_server, p: 10, q: 20, hidden_q: 50"}) {
    std::string recipe = kTinyRecipe;
    const std::string loss = "loss: {name: sampled_softmax, samples: 20}";
    use_rule(sync, recipe.replace(recipe.find(loss), loss.size(), "loss: {name: full_softmax}"));
    // Every worker uses all words of this text in each step: 19 of its 20 ids.
    Words words{"train.ema=0",
                "batch.micro=0",
                "batch.global=256",
                "batcher.sequence_length=40",
                "data.train_tokens=20000",
                "data.vocab_size=20",
                "data.classes=4",
                "data.branching=4"};
    const Json all =
        rows(path("tiny.yaml"), joined(words, {"--machine", "xiao_k40", "--ranks", "4", "--types", "19.01,0.000001"}));
    words.insert(words.end(), {"--ranks", "4", "train.steps=1", "train.log_every=1", "train.eval_tokens=50"});
    const std::string dir = "run" + std::to_string(sync.size());
    ASSERT_THAT(run(dir, words), Succeeds());
    double sent = 0;
    for (const Json& record : records(dir, "rank")) {
      for (const auto& [key, value] : record.items())
        if (key.ends_with("/sent_bytes") &&
            (key.find("/pull/") != std::string::npos || key.find("/push/") != std::string::npos))
          sent += value.get<double>();
    }
    // Zipf's law, which selects the rows that are sampled, also expects the id that the text does not use.
    const double tolerance = sync.find("sampled") == std::string::npos ? 0.02 : 0.05;
    EXPECT_NEAR(all[0]["sent_bytes"].get<double>(), sent / 4, tolerance * sent / 4) << sync;
  }
}

// The operating system limits the memory of the command to 1 GB.
TEST_F(PlanServer, TenThousandRanksNeedLessThanAGigabyte) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer reserves terabytes";
#endif
  for (const std::string sync : {"allreduce_levels", "param_server,param_server_rows"}) {
    const Outcome o = run_process(
        {"/bin/sh", "-c", "ulimit -v 1000000; exec \"$0\" \"$@\"", build_path("/bin/lmx"), "plan", path("tiny.yaml"),
         "--machine", "h100_node", "--ranks", "10000", "--json", "train.ema=0", "sync=" + sync},
        environment());
    ASSERT_EQ(o.code, 0) << sync << o.err;
    EXPECT_EQ(Json::parse(o.out)[0]["ranks"], 10'000);
  }
}

// Xiao 2017, Table 2: what is not sent pays more on more workers.
TEST_F(PlanServer, SampledRowsPayOnFourWorkers) {
  const Json all = rows(shipped("xiao_ptb.yaml"), {"--machine", "xiao_k40", "--ranks", "1,2,4", "loss=full_softmax",
                                                   "batch.global=256", "sync=param_server,param_server_rows"});
  ASSERT_EQ(all.size(), 6u);
  EXPECT_GT(all[4]["tokens_per_s"], all[1]["tokens_per_s"]);
  EXPECT_GT(all[5]["speedup"], all[2]["speedup"]);
}

}  // namespace
}  // namespace lmx_test
