// lmx plan --find: the variants that train a number of tokens within a time and a price.
#include <cmath>

#include "app/plan/find.h"
#include "plan_command.h"

namespace lmx_test {
namespace {

class PlanFind : public PlanCommand {
 protected:
  Json found(const Words& more, const std::string& goal) const {
    return rows(path("tiny.yaml"), joined(more, {"--find", goal}));
  }
  const Words variants_{"--machine",          "h100_node", "--ranks", "1,8,16", "train.ema=0", "sync=allreduce,diloco",
                        "sync.all.every=2,10"};
};

// The numbers of each candidate are those of a plan of this variant on this number of ranks alone.
TEST_F(PlanFind, EqualsThePlansMadeOneByOne) {
  const Json all = found(variants_, "tokens=1e9");
  ASSERT_EQ(all["met"].size(), 9u);
  EXPECT_EQ(all["tokens"], 1e9);
  double before = 0;
  std::map<std::string, const Json*> by_name;
  for (const Json& c : all["met"]) {
    EXPECT_GE(c["price"], before);
    before = c["price"];
    by_name[c["plan"]["variant"].get<std::string>() + " " + std::to_string(c["plan"]["ranks"].get<int>())] = &c;
  }
  for (const Words& variant :
       {Words{"sync=allreduce"}, {"sync=diloco", "sync.all.every=2"}, {"sync=diloco", "sync.all.every=10"}}) {
    for (const int ranks : {1, 8, 16}) {
      const Json row =
          rows(path("tiny.yaml"),
               joined({"--machine", "h100_node", "--ranks", std::to_string(ranks), "train.ema=0"}, variant))
              .at(0);
      std::string name;
      for (const std::string& word : variant) name += word + " ";
      ASSERT_TRUE(by_name.contains(name + std::to_string(ranks))) << name << ranks;
      const Json& c = *by_name[name + std::to_string(ranks)];
      for (const char* key :
           {"batch", "step_tokens", "memory", "sent_bytes", "network_bytes", "step_s", "tokens_per_s"})
        EXPECT_EQ(c["plan"][key], row[key]) << name << ranks << " " << key;
      const double steps = std::ceil(1e9 / row["step_tokens"].get<double>());
      EXPECT_EQ(c["steps"], steps);
      EXPECT_NEAR(c["hours"].get<double>() / (steps * row["step_s"].get<double>() / 3600), 1, 1e-12);
      const double nodes = ranks > 8 ? 2 : 1;  // a node of eight GPUs is paid as a whole
      EXPECT_NEAR(c["node_hours"].get<double>() / (nodes * c["hours"].get<double>()), 1, 1e-12);
      EXPECT_NEAR(c["price"].get<double>() / (98.32 * c["node_hours"].get<double>()), 1, 1e-12);
    }
  }
}

TEST_F(PlanFind, CountsWhatIsTooSlowOrTooExpensive) {
  const Json all = found(variants_, "tokens=1e9")["met"];
  std::vector<double> hours;
  for (const Json& c : all) hours.push_back(c["hours"]);
  std::sort(hours.begin(), hours.end());
  const double limit = (hours[3] + hours[4]) / 2, price = 98.32 * limit * 1.5;
  size_t met = 0, expensive = 0;
  for (const Json& c : all) {
    if (c["hours"] > limit) continue;
    ++(c["price"] > price ? expensive : met);
  }
  const Json some = found(variants_, lmx::str("tokens=1e9,hours=", limit));
  EXPECT_EQ(some["met"].size(), 4u);
  EXPECT_EQ(some["too_slow"], 5);
  EXPECT_EQ(some["too_expensive"], 0);
  EXPECT_FALSE(some.contains("nearest"));
  const Json both = found(variants_, lmx::str("tokens=1e9,hours=", limit, ",price=", price));
  EXPECT_EQ(both["met"].size(), met);
  EXPECT_EQ(both["too_expensive"], expensive);
  EXPECT_EQ(both["too_slow"], 5);
}

TEST_F(PlanFind, CountsWhatNeedsTooMuchMemory) {
  const Outcome o =
      plan(shipped("patwary_word_1b.yaml"), {"--machine", "patwary_titanx", "--ranks", "8,64",
                                             "sync=allgather_dense,unique_seeded_fp16", "--find", "tokens=1e8"});
  EXPECT_THAT(o, Prints(Names("3 of 4 plans reach 100,000,000 tokens; 1 is out of memory", "NODE HOURS",
                              "equal tokens are equal quality. They are not", "docs/experiments/beyond.md",
                              "Nothing was trained"),
                        Not(HasSubstr("sync=allgather_dense     64"))));
  EXPECT_THAT(o.out, Not(HasSubstr("USD")));  // the price of that machine is not known
}

TEST_F(PlanFind, ShowsTheNearestIfNoneReachesTheGoal) {
  const Json all = found(variants_, "tokens=1e9")["met"];
  double least = 1e300;
  for (const Json& c : all) least = std::min(least, c["hours"].get<double>());
  const Json none = found(variants_, lmx::str("tokens=1e9,hours=", least / 2));
  EXPECT_EQ(none["met"], Json::array());
  EXPECT_EQ(none["too_slow"], 9);
  EXPECT_NEAR(none["nearest"]["hours"], least, 1e-9);
  Words words = variants_;
  words.insert(words.end(), {"--find", lmx::str("tokens=1e9,hours=", least / 2)});
  EXPECT_THAT(plan(path("tiny.yaml"), words).out,
              Names("no plan of 9 reaches", "9 are too slow", "takes 2 times the limit"));
  // The one of the least memory, if none fits.
  int64_t memory = 0;
  for (const Json& c : all)
    if (const int64_t bytes = c["plan"]["memory_bytes"]; memory == 0 || bytes < memory) memory = bytes;
  words = variants_;
  words.push_back("machine.device.memory_gb=1e-6");
  const Json small = found(words, "tokens=1e9,hours=1e6");
  EXPECT_EQ(small["out_of_memory"], 9);
  EXPECT_EQ(small["nearest"]["plan"]["memory_bytes"], memory);
}

TEST(PlanGoal, IsReadOrRefusedInOneSentence) {
  const auto refused = [](const std::string& goal, const Words& facts) {
    const std::string error = user_error([&] { (void)lmx::app::plan::parse_goal(goal); });
    EXPECT_THAT(error, NamesMatcher(facts)) << goal;
    EXPECT_THAT(error, Not(HasSubstr("\n"))) << goal;
  };
  refused("", {"tokens, hours and price"});
  refused("24h", {"'24h'", "tokens=2e9"});
  refused("hours=24", {"needs tokens=N"});
  refused("tokens=2e9,hous=3", {"'hous'", "'hours'?"});
  for (const char* goal : {"tokens=0", "tokens=-1", "tokens=nan", "tokens=inf", "tokens=many", "tokens",
                           "tokens=1e9,hours=0", "tokens=1e9,price=-5"})
    refused(goal, {"number above 0"});
  refused("tokens=1e19", {"1e+18"});
  refused("tokens=0.5", {"from 1"});
  const lmx::app::plan::Goal goal = lmx::app::plan::parse_goal("price=5,tokens=2e9");
  EXPECT_EQ(goal.tokens, 2e9);
  EXPECT_EQ(goal.price, 5);
  EXPECT_FALSE(goal.hours);
}

TEST_F(PlanFind, RefusesWhatItCannotAnswer) {
  expect_refused({"--machine", "patwary_titanx", "--find", "tokens=1e9,price=100"},
                 {"patwary_titanx", "machine.price.node_hour"});
  EXPECT_GT(found({"--machine", "patwary_titanx", "machine.price.node_hour=5"}, "tokens=1e9")["met"][0]["price"], 0);
  expect_refused({"--machine", "h100_node", "--find", "tokens=1e9", "--out", path("plan.csv")}, {"--find", "--out"});
  expect_refused({"--machine", "h100_node", "--find", "tokens=0"}, {"'tokens=0'"});
  expect_refused({"--machine", "h100_node", "--epoch-tokens", "0"}, {"'0' is no number above 0"});
  expect_refused({"--machine", "h100_node", "machine.links.network.gb_s=1e-320"}, {"links.network.gb_s", "1e-09"});
  // Many tokens are no mistake.
  EXPECT_EQ(found({"--machine", "h100_node"}, "tokens=1e18,hours=24")["too_slow"], 1);
}

// A key applies to the variants that have it.
TEST_F(PlanFind, KeysOfOneChoiceMakeNoVariantsOfOthers) {
  Words variants;
  for (const Json& row :
       rows(path("tiny.yaml"), {"--machine", "h100_node", "train.ema=0", "sync=allreduce,local_sgd,diloco",
                                "sync.all.outer_lr=0.5,0.7", "sync.all.every=4"}))
    variants.push_back(row["variant"]);
  EXPECT_THAT(variants, testing::ElementsAre("sync=allreduce", "sync=local_sgd", "sync=diloco sync.all.outer_lr=0.5",
                                             "sync=diloco sync.all.outer_lr=0.7"));
  expect_refused({"--machine", "h100_node", "train.ema=0", "sync=allreduce,diloco", "sync.all.evry=10,50"},
                 {"no variant has the key sync.all.evry", "'every'?"});
}

// An exchange of separate values waits for the update. With a delay, steps hide as much of it as they take.
TEST_F(PlanFind, ADelayHidesWhatItsStepsTake) {
  const Json all = rows(path("tiny.yaml"), {"--machine", "desk_10gbe", "--ranks", "4", "train.ema=0", "sync=diloco",
                                            "sync.all.every=10", "sync.all.delay=0,1,9"});
  const double every = 10, none = all[0]["exposed_s"], one = all[1]["exposed_s"];
  EXPECT_NEAR(none, all[0]["comm_s"].get<double>(), 1e-12);
  EXPECT_NEAR(one, std::max(0.0, none - all[0]["compute_s"].get<double>() / every), 1e-9 * none);
  EXPECT_LE(all[2]["exposed_s"], one);
  EXPECT_NEAR(all[2]["comm_s"].get<double>() / none, 1, 1e-9);
  EXPECT_GT(none, one);
}

// ZeRO stage 3 on G ranks: three collectives of n values, and 1/G of values, gradients and the optimizer's state.
TEST_F(PlanFind, DividedValuesAreGatheredTwice) {
  write("gpt.yaml", R"(
data: {name: synthetic, vocab_size: 512}
model: {name: gpt, layers: 6, d: 256, heads: 4, ffn: 1024}
loss: {name: full_softmax, bias: false}
optimizer: {name: adam, lr: 0.001}
batcher: {name: random_windows, sequence_length: 8}
batch: {global: 4}
train: {steps: 10, eval_batch: 1, eval_tokens: 8}
sync: {all: {params: '.*', strategy: zero, bucket_mb: 1}}
)");
  const auto of = [](const Json& row, const char* name) { return row["memory"][name].get<double>(); };
  const auto planned = [&](int ranks, int passes, const std::string& stages) {
    return rows(path("gpt.yaml"), {"--machine", "h100_node", "--ranks", std::to_string(ranks), "batch.micro=1",
                                   "batch.global=" + std::to_string(ranks * passes), "sync.all.stage=" + stages});
  };
  const Json alone = planned(1, 1, "2,3");
  EXPECT_EQ(alone[1]["sent_bytes"], 0);
  EXPECT_EQ(alone[0]["memory"], alone[1]["memory"]);
  const double n = of(alone[0], "parameters");  // bytes
  EXPECT_GT(n, 4 * 4e6);
  constexpr double kUnits = 3 * 1024 * 1024;  // two units of 1 MB, and a parameter more
  for (const int ranks : {4, 16}) {
    const double g = ranks;
    const Json all = planned(ranks, 1, "2,3");
    EXPECT_NEAR(all[0]["sent_bytes"].get<double>(), 2 * n * (g - 1) / g, 0.01 * n);
    EXPECT_NEAR(all[1]["sent_bytes"].get<double>(), 3 * n * (g - 1) / g, 0.01 * n);
    EXPECT_NEAR(of(all[0], "parameters"), n, 1);
    EXPECT_GT(of(all[1], "parameters"), n / g);
    EXPECT_LT(of(all[1], "parameters"), n / g + kUnits);
    EXPECT_LT(of(all[1], "optimizer"), 2.05 * n / g);
    EXPECT_LT(of(all[1], "gradients"), n / g + kUnits);
    EXPECT_NEAR(all[0]["memory_bytes"].get<double>() - all[1]["memory_bytes"].get<double>(),
                n - of(all[1], "parameters"), 1);
    EXPECT_GE(all[1]["exposed_s"].get<double>(), 0);
    EXPECT_LE(all[1]["exposed_s"], all[1]["comm_s"]);
    // Each further pass gathers twice more.
    const Json passes = planned(ranks, 2, "3");
    EXPECT_NEAR(passes[0]["sent_bytes"].get<double>(), 5 * n * (g - 1) / g, 0.015 * n);
  }
  const Outcome o = plan(path("gpt.yaml"), {"--machine", "h100_node", "--ranks", "4", "sync.all.stage=3"});
  EXPECT_THAT(o.out, testing::HasSubstr("no run of lmx does that"));
  for (const char* option : {"--ranks=2", "--dry-run"}) {
    const Outcome run = lmx({"run", path("gpt.yaml"), "sync.all.stage=3", option});
    EXPECT_THAT(run, Refuses("override 'sync.all.stage=3': stage 3 can only be planned (lmx plan)", "stage 1 or 2"))
        << option;
  }
}

// Ranks that sum some gradients in each step exchange nothing beside these steps.
TEST_F(PlanFind, ADelayHidesNothingBesideSums) {
  const auto plan_of = [&](const std::string& rest) {
    const std::string rules =
        "sync={tables: {params: embedding|softmax, strategy: allreduce}, rest: {params: .*, strategy: ";
    return rows(path("tiny.yaml"),
                {"--machine", "desk_10gbe", "--ranks", "4", "train.ema=0", "~sync", rules + rest + "}}"})
        .at(0);
  };
  const std::string outer = "diloco, every: 10";
  const Json at_once = plan_of(outer), later = plan_of(outer + ", delay: 9"), sums = plan_of("allreduce");
  EXPECT_EQ(later["exposed_s"], at_once["exposed_s"]);
  const double tables = plan_of("diloco, every: 1000000000")["sent_bytes"], all = sums["sent_bytes"];
  EXPECT_NEAR(at_once["sent_bytes"].get<double>(), tables + (all - tables) / 10, 1);
  EXPECT_LT(tables, all);
}

TEST_F(PlanFind, NumbersOfRanksAreThoseOfTheOption) {
  expect_refused({"--machine", "h100_node", "comm=virtual", "comm.ranks=2,4"}, {"comm.ranks", "--ranks"});
  EXPECT_EQ(found({"--machine", "h100_node", "--ranks", "2,4"}, "tokens=1e6")["met"].size(), 2u);
}

}  // namespace
}  // namespace lmx_test
