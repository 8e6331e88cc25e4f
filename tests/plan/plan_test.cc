// lmx plan as a command: its values against a run's ledger and the papers, and its messages.
#include <cmath>

#include "lmx/error.h"
#include "plan_command.h"

namespace lmx_test {
namespace {

TEST_F(PlanCommand, PrintsATableAndItsAssumptions) {
  EXPECT_THAT(plan(path("tiny.yaml"), {"--machine", "h100_node", "--ranks", "1,8,16", "sync=allreduce,one_bit"}),
              Prints("plan of tiny on h100_node", "VARIANT", "sync=allreduce", "sync=one_bit",
                     "16 ranks: ", "not calibrated", "collectives: auto", "assumed: words follow Zipf's law"));
}

// A plan that does not know the time of choosing and packing values must not hide that.
TEST_F(PlanCommand, AnExchangeThatIsNotMeasuredIsAnAssumption) {
  const auto planned = [&](const char* machine, const char* ranks) {
    return plan(path("tiny.yaml"), {"--machine", machine, "--ranks", ranks, "sync=allreduce,top_k"}).out;
  };
  const char* const note = "assumed: a rank's own work on an exchange";
  EXPECT_THAT(planned("desk_10gbe", "2"), AllOf(HasSubstr(note), HasSubstr("less for the exchange")));
  EXPECT_THAT(planned("desk_10gbe", "1"), Not(HasSubstr(note)));
}

TEST_F(PlanCommand, NamesWhatMayEndTheRunEarlier) {
  const auto planned = [&](const std::string& more) {
    return plan(path("tiny.yaml"), {"--machine", "h100_node", "--ranks", "2", more}).out;
  };
  EXPECT_THAT(planned("stop.when='valid.nll_bit <= 2'"), HasSubstr("stop.when may end it earlier"));
  EXPECT_THAT(planned("stop.patience=3"), HasSubstr("stop.patience may end it earlier"));
  EXPECT_THAT(planned("stop={when: 'valid.nll_bit <= 2', patience: 3}"),
              HasSubstr("although stop.when or stop.patience may end it earlier"));
  EXPECT_THAT(planned("stop.patience=0"), Not(HasSubstr("may end it earlier")));
}

TEST_F(PlanCommand, JsonHasTheFieldsOfItsPage) {
  const Json all = rows(path("tiny.yaml"), {"--machine", "a100_node", "--ranks", "8", "train.steps=100"});
  ASSERT_EQ(all.size(), 1u);
  for (const char* key :
       {"variant",    "ranks",      "batch",         "step_tokens", "memory_bytes",    "memory", "out_of_memory",
        "sent_bytes", "node_bytes", "network_bytes", "compute_s",   "wait_s",          "comm_s", "hidden_s",
        "exposed_s",  "step_s",     "tokens_per_s",  "efficiency",  "hours_per_epoch", "hours",  "price_per_epoch"})
    EXPECT_TRUE(all[0].contains(key)) << key;
  const Json& row = all[0];
  EXPECT_NEAR(row["step_s"], row["compute_s"].get<double>() + row["exposed_s"].get<double>(), 1e-12);
  EXPECT_NEAR(row["tokens_per_s"], row["step_tokens"].get<double>() / row["step_s"].get<double>(), 1e-6);
  EXPECT_EQ(row["sent_bytes"], row["node_bytes"].get<int64_t>() + row["network_bytes"].get<int64_t>());
  EXPECT_NEAR(row["hours"], 100 * row["step_s"].get<double>() / 3600, 1e-12);
  // 3,000 tokens in an epoch, and the price of one node.
  EXPECT_NEAR(row["hours_per_epoch"], 3000 / row["tokens_per_s"].get<double>() / 3600, 1e-12);
  EXPECT_NEAR(row["price_per_epoch"], 40.97 * row["hours_per_epoch"].get<double>(), 1e-12);
}

// Patwary 2018, Table III: gathered matrices do not fit into 12 GB from 32 ranks on.
TEST_F(PlanCommand, TheCellsOfTableThreeRunOutOfMemory) {
  for (const Json& row :
       rows(shipped("patwary_word_1b.yaml"), {"--machine", "patwary_titanx", "--ranks", "8,16,24,32,64",
                                              "--collectives", "ring", "sync=allgather_dense,unique_seeded_fp16"})) {
    const bool expected = row["variant"] == "sync=allgather_dense" && row["ranks"] >= 32;
    EXPECT_EQ(row["out_of_memory"].get<bool>(), expected) << row["variant"] << " " << row["ranks"];
  }
}

// Puri 2018, Figure 3b: seconds of an iteration, given that of 8 GPUs.
TEST_F(PlanCommand, TheIterationsOfFigureThreeAreWithinTenPercent) {
  struct Column {
    const char *recipe, *machine, *anchor;
    std::map<int, double> seconds;
  };
  for (const Column& c : {Column{"puri_amazon_4096.yaml",
                                 "puri_v100_no_ib",
                                 "8:0.85",
                                 {{1, .81}, {8, .85}, {16, 1.09}, {32, 1.11}, {64, 1.13}, {128, 1.12}}},
                          {"puri_amazon_4096.yaml",
                           "puri_v100",
                           "8:0.85",
                           {{1, .81}, {8, .85}, {16, .91}, {32, .91}, {64, .93}, {128, .91}}},
                          {"puri_amazon_8192.yaml",
                           "puri_v100",
                           "8:2.02",
                           {{1, 2.01}, {8, 2.02}, {16, 2.08}, {32, 2.05}, {64, 2.10}, {128, 2.13}}}}) {
    for (const Json& row : rows(shipped(c.recipe), {"--machine", c.machine, "--collectives", "ring", "--anchor",
                                                    c.anchor, "--ranks", "1,8,16,32,64,128"})) {
      const double paper = c.seconds.at(row["ranks"].get<int>());
      EXPECT_NEAR(row["step_s"].get<double>() / paper, 1, 0.1) << c.recipe << ' ' << c.machine << ' ' << row["ranks"];
    }
  }
}

// The file of a machine states the steps that it is known to reach, so that a plain plan has the numbers of the papers'
// tables. The page docs/experiments/patwary2018-planned.md shows them beside the papers'.
TEST_F(PlanCommand, APlainPlanHasTheNumbersOfTheExperiment) {
  struct Table {
    const char *experiment, *recipe, *machine, *ranks;
    std::vector<std::pair<const char*, const char*>> variants;  // method of the cells, and the override
  };
  for (const Table& t : {Table{"patwary2018/table3_hours",
                               "patwary_word_1b.yaml",
                               "patwary_titanx",
                               "8,16,24,32,64",
                               {{"without", "sync=allgather_dense"}, {"with", "sync=unique_seeded_fp16"}}},
                         {"patwary2018/table4_hours",
                          "patwary_char_1b.yaml",
                          "patwary_titanx",
                          "8,16,24,32,64",
                          {{"without", "sync=allgather"}, {"with", "sync=unique_fp16"}}}}) {
    const Outcome shown = lmx(
        {"experiment", "show", source_path("/experiments/") + t.experiment + ".yaml", "--scale", "paper", "--json"});
    ASSERT_THAT(shown, Succeeds());
    std::map<std::string, Json> cells;
    const Json results = Json::parse(shown.out);
    for (const Json& cell : results["cells"]) cells[cell["id"]] = cell["planned"];
    for (const auto& [method, override] : t.variants) {
      for (const Json& row : rows(shipped(t.recipe), {"--machine", t.machine, "--ranks", t.ranks, override})) {
        if (row["out_of_memory"]) continue;
        const Json& planned = cells.at(lmx::str(method, "-", row["ranks"].get<int>()));
        EXPECT_EQ(planned["hours"], row["hours_per_epoch"]) << method << ' ' << row["ranks"];
        EXPECT_EQ(planned["step"], row["step_s"]) << method << ' ' << row["ranks"];
      }
    }
  }
}

// The factor that a known step sets holds for its machine, its kind of model and its precision.
TEST_F(PlanCommand, AKnownStepSetsTheSpeedOfItsModelAndPrecision) {
  const std::string shipped_machine = read_file(source_path("/recipes/machine/desk_10gbe.yaml"));
  const std::string at = "sources:\n";
  std::string machine = shipped_machine;
  machine.insert(machine.find(at), "known: [{recipe: tiny, ranks: 2, step_s: 0.5}]\n");
  write("here.yaml", machine + "  known: measured\n");
  const Words on{"--machine", path("here.yaml"), "--ranks", "1,2"};
  const Json all = rows(path("tiny.yaml"), on);
  EXPECT_NEAR(all[1]["step_s"], 0.5, 1e-9);
  EXPECT_GT(all[0]["speed"], 1);
  EXPECT_EQ(all[0]["speed"], all[1]["speed"]);
  EXPECT_THAT(plan(path("tiny.yaml"), on).out, Names("times as long", "known step of tiny on 2 ranks takes 0.5 s"));
  // An anchor on the command line replaces it.
  EXPECT_NEAR(rows(path("tiny.yaml"), joined(on, {"--anchor", "2:0.25"}))[1]["step_s"], 0.25, 1e-9);
  Words other = on;
  other.emplace_back("precision=bf16");
  EXPECT_EQ(rows(path("tiny.yaml"), other)[0]["speed"], 1);
  EXPECT_THAT(plan(path("tiny.yaml"), other).out, HasSubstr("not calibrated"));
  for (const char* wrong : {"{recipe: tiny, ranks: 2}", "{recipe: tiny, step_s: 1, tokens_per_s: 2}",
                            "{recipe: tiny, hours_per_epoch: 1}", "{recipe: tiny, step_s: 1, seconds: 1}"}) {
    std::string bad = shipped_machine;
    bad.insert(bad.find(at), std::string("known: [") + wrong + "]\n");
    write("here.yaml", bad + "  known: measured\n");
    const Outcome o = plan(path("tiny.yaml"), on);
    EXPECT_EQ(o.code, 2) << wrong;
    EXPECT_THAT(o.err, HasSubstr("machine.known.0")) << wrong;
  }
}

// Every rank uses all words of this text in each step: 19 of its 20 ids, so the number of rows is known exactly.
TEST_F(PlanCommand, SendsTheBytesOfTheLedger) {
  std::string recipe = read_file(folder_ / "tiny.yaml");
  const std::string loss = "loss: {name: sampled_softmax, samples: 20}";
  write("tiny.yaml", recipe.replace(recipe.find(loss), loss.size(), "loss: {name: full_softmax}"));
  const Words dense{"data.vocab_size=20",     "data.classes=4", "data.branching=4",
                    "batch.global=256",       "batch.micro=0",  "batcher.sequence_length=40",
                    "data.train_tokens=20000"};
  for (const std::string sync : {"sync=allreduce", "sync=unique", "sync=unique_fp16", "sync=one_bit", "sync=allgather",
                                 "sync=allgather_dense"}) {
    for (const std::string ranks : {"2", "4"}) {
      Words words = dense;
      words.push_back(sync);
      const Json all = rows(path("tiny.yaml"),
                            joined(words, {"--machine", "desk_10gbe", "--ranks", ranks, "--types", "19.01,0.000001"}));
      ASSERT_EQ(all.size(), 1u);
      words.insert(words.end(), {"--ranks", ranks, "train.steps=1", "train.log_every=1", "train.eval_tokens=50"});
      const std::string dir = "run_" + sync.substr(5) + ranks;
      ASSERT_THAT(run(dir, words), Succeeds());
      int64_t sent = -1;
      for (const Json& record : records(dir, "rank")) {
        if (record["rank"] != 0) continue;
        sent = 0;
        for (const auto& [key, value] : record.items())
          if (key.starts_with("comm/") && key.ends_with("/sent_bytes") && !key.starts_with("comm/control"))
            sent += value.get<int64_t>();
      }
      EXPECT_EQ(all[0]["sent_bytes"].get<int64_t>(), sent) << sync << " on " << ranks;
    }
  }
}

TEST_F(PlanCommand, RanksKeepTheirShareUnlessTheBatchIsSet) {
  const Words on{"--machine", "desk_10gbe", "--ranks", "1,4"};
  const Json weak = rows(path("tiny.yaml"), on);
  EXPECT_EQ(weak[0]["batch"], 8);
  EXPECT_EQ(weak[1]["batch"], 32);
  Words fixed = on;
  fixed.push_back("batch.global=16");
  const Json strong = rows(path("tiny.yaml"), fixed);
  EXPECT_EQ(strong[0]["batch"], 16);
  EXPECT_EQ(strong[1]["batch"], 16);
}

// Hours and prices of a paper's recipe need no corpus, because its recipe states the published size.
TEST_F(PlanCommand, APublishedSizeGivesHours) {
  for (const auto& [recipe, tokens] : {std::pair{"ott_wmt.yaml", 138e6},
                                       {"patwary_word_1b.yaml", 772.2e6},
                                       {"patwary_char_1b.yaml", 4.148e9},
                                       {"patwary_tieba.yaml", 34.33e9},
                                       {"puri_amazon_4096.yaml", 39e9},
                                       {"xiao_fbis.yaml", 4.94e6}}) {
    SCOPED_TRACE(recipe);
    auto without = environment();
    without["LMX_DATA_DIR"] = path("nothing");
    const std::string machine = std::string(recipe).starts_with("xiao") ? "xiao_k40" : "h100_node";
    const auto planned = [&](const Words& more) {
      return run_process(joined({build_path("/bin/lmx"), "plan", shipped(recipe), "--machine", machine}, more),
                         without);
    };
    const Outcome o = planned({"--json"});
    ASSERT_THAT(o, Succeeds());
    const Json row = Json::parse(o.out)[0];
    EXPECT_NEAR(row["hours_per_epoch"].get<double>(), tokens / row["tokens_per_s"].get<double>() / 3600,
                1e-6 * row["hours_per_epoch"].get<double>());
    EXPECT_TRUE(row.contains("hours"));
    EXPECT_THAT(planned({}).out, HasSubstr("provenance.corpus_tokens"));
    EXPECT_THAT(planned({"--epoch-tokens", "1e6"}).out, Not(HasSubstr("provenance.corpus_tokens")));
  }
}

TEST_F(PlanCommand, AnAnchorSetsTheStepOfTheFirstVariant) {
  const Json all = rows(path("tiny.yaml"),
                        {"--machine", "desk_10gbe", "--ranks", "1,2", "--anchor", "2:0.25", "sync=allreduce,one_bit"});
  EXPECT_NEAR(all[1]["step_s"], 0.25, 1e-9);
  expect_refused({"--machine", "desk_10gbe", "--ranks", "2", "--anchor", "2:0.00000001"}, {"--anchor", "2 ranks"});
  expect_refused({"--machine", "desk_10gbe", "--ranks", "2", "--anchor", "2:1e12"}, {"--anchor", "2 ranks"});
  expect_refused({"--machine", "desk_10gbe", "--anchor", "5000000000:1"}, {"RANKS:SECONDS"});
  expect_refused({"--machine", "desk_10gbe", "--spread", "nan"}, {"--spread"});
  expect_refused({"--machine", "desk_10gbe", "--anchor", "x"}, {"RANKS:SECONDS", "'x'"});
}

// A run of one rank on this machine sets the speed, so its own plan has its own time.
TEST_F(PlanCommand, TakesItsTimesFromARun) {
  ASSERT_THAT(run("one", {"train.log_every=1", "train.steps=20"}), Succeeds());
  std::vector<double> steps = series("one", "train", "step_s");
  ASSERT_EQ(steps.size(), 20u);
  std::sort(steps.begin() + 1, steps.end());
  const Json all = rows(path("tiny.yaml"), {"--machine", "desk_10gbe", "--ranks", "1,2", "--from", path("one")});
  EXPECT_NEAR(all[0]["step_s"].get<double>(), steps[10], 1e-9);
  ASSERT_THAT(run("two", {"--ranks", "2", "train.steps=2"}), Succeeds());
  expect_refused({"--machine", "desk_10gbe", "--from", path("two")}, {"two", "2 ranks", "one process"});
  expect_refused({"--machine", "desk_10gbe", "--from", path("none")}, {"none", "config.yaml"});
}

// The values are times, so only their presence is tested.
TEST_F(PlanCommand, CalibratesTheMachineOnWhichItRuns) {
  Words words{"--calibrate", path("here.yaml")};
  if (LMX_HAS_GLOO) words.insert(words.end(), {"comm.name=gloo", "comm.ranks=2", "comm.heartbeat_s=1"});
  ASSERT_THAT(plan(path("tiny.yaml"), words), Prints("here.yaml"));
  // The recurrent weight: 4 sequences, 64 gates, 8 inputs (batch.micro is a rank's whole share with two ranks).
  EXPECT_THAT(read_file(folder_ / "here.yaml"),
              Names("measured by lmx plan --calibrate", "m: 4\n      'n': 64\n      k: 8"));
  const Json all = rows(path("tiny.yaml"), {"--machine", path("here.yaml"), "--ranks", "1,2"});
  ASSERT_EQ(all.size(), 2u);
  for (const Json& row : all) EXPECT_GT(row["compute_s"].get<double>(), 0);
  fs::remove(path("here.yaml"));
  expect_refused({"--calibrate", path("m.yaml"), "comm.name=virtual", "comm.ranks=2"},
                 {"--calibrate", "threads of one"});
  expect_refused({"--calibrate", path("m.txt")}, {"m.txt", ".yaml"});
  expect_refused({"--calibrate", path("m.yaml"), "--ranks", "2"}, {"--ranks", "--calibrate"});
  EXPECT_FALSE(fs::exists(path("m.yaml")));
}

TEST_F(PlanCommand, EachVariantHasItsMachineAndItsCollectives) {
  const Json all = rows(shipped("patwary_word_1b.yaml"), {"--machine", "patwary_titanx", "--ranks", "16", "sync=unique",
                                                          "machine.links.network.gb_s=1,4"});
  EXPECT_GT(all[0]["exposed_s"].get<double>(), 2 * all[1]["exposed_s"].get<double>());
  const Outcome o =
      plan(path("tiny.yaml"), {"--machine", "ott_v100", "--ranks", "16", "machine.links.collectives=ring,tree"});
  EXPECT_THAT(o.out, Names("collectives: ring with machine.links.collectives=ring, tree with"));
  expect_refused({"--machine", "ott_v100", "--ranks", "16", "machine.links.collectives=rong"},
                 {"machine.links.collectives", "rong", "ring"});
  expect_refused({"--machine", "a100_node", "--ranks", "8", "comm=mpi", "comm.ranks=4,8"}, {"comm.ranks", "--ranks"});
  // The command has no --ranks, which would mean something else in `lmx run`.
  const Words own{"--machine", "a100_node", "comm.ranks=4"};
  expect_refused(own, {"override 'comm.ranks=4'", "comm.name: virtual", "mpi"});
  EXPECT_THAT(plan(path("tiny.yaml"), own).err, Not(HasSubstr("--ranks")));
}

TEST_F(PlanCommand, EqualVariantsHaveNoWinner) {
  const Outcome o = plan(path("tiny.yaml"), {"--machine", "a100_node", "--ranks", "1,1", "sync=unique,one_bit"});
  EXPECT_THAT(o.out, HasSubstr("1 rank: all variants that fit are equally fast\n"));
  EXPECT_EQ(rows(path("tiny.yaml"), {"--machine", "a100_node", "--ranks", "4,2,4"}).size(), 2u);
}

// Two levels on nodes of 8: an eighth of the bytes crosses nodes. Thousands of ranks need no more memory than a few.
TEST_F(PlanCommand, TwoLevelsSendLessBetweenTenThousandRanks) {
  const Json all = rows(shipped("patwary_word_1b.yaml"), {"--machine", "h100_node", "--ranks", "10000", "--collectives",
                                                          "pairwise", "sync=allreduce,allreduce_levels"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_LT(all[1]["network_bytes"].get<double>(), 0.3 * all[0]["network_bytes"].get<double>());
  EXPECT_LT(all[1]["exposed_s"].get<double>(), all[0]["exposed_s"].get<double>());
}

TEST_F(PlanCommand, FewerBytesPayOnSlowNetworks) {
  const Outcome o = plan(shipped("ott_wmt.yaml"), {"--machine", "desk_10gbe", "--ranks", "16", "--collectives",
                                                   "pairwise", "sync=allreduce,one_bit"});
  EXPECT_THAT(o.out, Names("on 16 ranks sync=one_bit pays below", "between nodes, sync=allreduce above"));
}

TEST_F(PlanCommand, WritesFilesForProgramsAndBrowsers) {
  const Words on{"--machine", "h100_node", "--ranks", "8,16", "sync=allreduce,one_bit", "--out"};
  for (const auto& [name, fact] : {std::pair<std::string, std::string>{"p.json", "\"tokens_per_s\""},
                                   {"p.csv", "variant,ranks,"},
                                   {"p.svg", "<svg"},
                                   {"p.html", "<svg"}}) {
    Words words = on;
    words.push_back(path(name));
    EXPECT_THAT(plan(path("tiny.yaml"), words), Succeeds());
    EXPECT_THAT(read_file(folder_ / name), HasSubstr(fact)) << name;
  }
  EXPECT_EQ(Json::parse(read_file(folder_ / "p.json")).size(), 4u);
  expect_refused({"--machine", "h100_node", "--out", path("p.txt")}, {"p.txt", ".json", ".html"});
}

TEST_F(PlanCommand, EveryShippedMachineIsRead) {
  int machines = 0;
  for (const auto& file : fs::directory_iterator(shipped("machine"))) {
    const Json all = rows(path("tiny.yaml"), {"--machine", file.path().stem().string(), "--ranks", "2,16"});
    ASSERT_EQ(all.size(), 2u) << file.path();
    EXPECT_TRUE(std::isfinite(all[1]["step_s"].get<double>()));
    ++machines;
  }
  EXPECT_EQ(machines, 10);
}

TEST_F(PlanCommand, MachinesStateTheSourceOfEachValue) {
  write("m.yaml",
        "title: mine\ndevice: {memory_gb: 10, memory_gb_s: 100, peak_tflops: {fp32: 1}, efficiency: {fp32: 1}}\n"
        "links: {node: {gb_s: 10}, network: {gb_s: 1}, ranks_per_node: 2}\n"
        "sources: {device: here, links.node: here, links.ranks_per_node: here}\n");
  expect_refused({"--machine", path("m.yaml")}, {"m.yaml:1", "links.network.gb_s"});
  expect_refused({"--machine", path("m.yaml"), "machine.device.memory_gb=5"},
                 {"machine.device.memory_gb=5", "--machine"});
  expect_refused({"--machine", "h100"}, {"h100", "h100_node"});
  expect_refused({"--machine", "h100_node", "machine.device.memory=5"}, {"memory_gb"});
  EXPECT_THAT(plan(path("tiny.yaml"), {"--machine", "h100_node", "machine.device.memory_gb=5"}), Succeeds());
}

TEST_F(PlanCommand, AnErrorThatSomeVariantsHaveNamesTheFirstOfThem) {
  const auto error = [&](const Words& more) {
    return plan(path("tiny.yaml"), joined({"--machine", "h100_node"}, more)).err;
  };
  EXPECT_THAT(error({"sync=allreduce,demo"}), StartsWith("error: sync=demo: [sync] sync.all: "));
  EXPECT_THAT(error({"model.cells=8,16", "optimizer.lr=0.1,-1"}), StartsWith("error: model.cells=8 optimizer.lr=-1: "));
  EXPECT_THAT(error({"model.cells=8,16", "optimizer.lr=-1"}), StartsWith("error: override 'optimizer.lr=-1'"));
}

TEST_F(PlanCommand, RefusesWhatItCannotPlan) {
  expect_refused({"--machine", "h100_node", "--types", "8"}, {"FACTOR,EXPONENT", "'8'"});
  expect_refused({"--machine", "h100_node", "--ranks", "0"}, {"--ranks"});
  expect_refused({"--machine", "puri_v100", "precision=bf16"}, {"bf16", "machine.device.peak_tflops.bf16"});
  expect_refused({"--machine", "h100_node", "device=cuda", "products=tf32"}, {"products=tf32", "products=exact"});
  expect_refused({}, {"--machine"});
}

TEST_F(PlanCommand, TakesThePaperLawOfTypes) {
  // Twice as many different words of 16 x 640 are twice as many rows of 512 floats in both tables.
  const auto sent = [&](const std::string& law) {
    return rows(shipped("patwary_word_1b.yaml"), {"--machine", "patwary_titanx", "--ranks", "16", "sync=unique",
                                                  "loss.samples=1", "--types", law})[0]["sent_bytes"]
        .get<double>();
  };
  const double types = 8.17 * std::pow(10240, 0.64), difference = sent("16.34,0.64") - sent("8.17,0.64");
  EXPECT_NEAR(difference, 2 * types * 512 * 4 * 2 * 15 / 16, 0.05 * difference);
}

}  // namespace
}  // namespace lmx_test
