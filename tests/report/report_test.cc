// lmx report: the tables of a run are sums over its records.
#include <cmath>
#include <fstream>

#include "app/report/compare.h"
#include "app/runs/run_directory.h"
#include "base/text.h"
#include "comm/mpi_here.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class Report : public RunTest {
 protected:
  Outcome report(const std::string& dir, const Words& more = {}) const {
    return lmx(joined({"report", path(dir)}, more));
  }
};

TEST_F(Report, OneRank) {
  ASSERT_THAT(run("a", {"train.steps=30"}), Succeeds());
  const Outcome o = report("a");
  ASSERT_THAT(o, Succeeds());
  const Json last = records("a").back();
  ASSERT_EQ(last["split"], "valid");
  char ppl[32];
  std::snprintf(ppl, sizeof ppl, "%.6g", last["ppl"].get<double>());
  EXPECT_THAT(o.out, AllOf(Names("valid ppl", ppl, "1 rank", "embedding.weight", "MEMORY, PEAK"),
                           Not(HasSubstr("MOST OF A RANK")), Not(HasSubstr("COLLECTIVE"))));
}

// status.json of a process that was killed says "running" for ever.
TEST_F(Report, ARunWhoseProcessIsGoneIsKilled) {
  ASSERT_THAT(run("a", {"train.steps=5"}), Succeeds());
  lmx::app::write_status(path("a"), "running", 5, "");
  EXPECT_THAT(report("a").out, HasSubstr("state       running\n"));
  const std::string file = path("a") + "/status.json";
  Json status = Json::parse(lmx::read_file(file));
  status["pid"] = 1 << 30;  // above the largest number of a process
  std::ofstream(file) << status;
  EXPECT_THAT(report("a").out, HasSubstr("state       killed: its process has ended"));
  EXPECT_EQ(Json::parse(report("a", {"--json"}).out)["state"], "killed");
  status["host"] = "another-machine";
  std::ofstream(file) << status;
  EXPECT_THAT(report("a").out, HasSubstr("state       running\n"));
  fs::rename(path("a"), path("a\xFF"));  // JSON is UTF-8
  EXPECT_EQ(Json::parse(report("a\xFF", {"--json"}).out)["state"], "running");
}

TEST_F(Report, MetricsOfTheRecipe) {
  ASSERT_THAT(run("a", {"train.steps=5", "+metric=top_words"}), Succeeds());
  const Json last = records("a").back();
  const double value = last.at("accuracy/top_5");
  EXPECT_GT(value, 0);
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  const Outcome o = report("a"), json = report("a", {"--json"});
  EXPECT_THAT(o.out, Names("valid accuracy/top_1", "valid accuracy/top_5", text));
  EXPECT_EQ(Json::parse(json.out)["valid"]["accuracy/top_5"], value);
  const Outcome eval = lmx({"eval", path("a")});
  EXPECT_THAT(eval.out, Names("valid accuracy/top_1", lmx::str("valid accuracy/top_5 ", text)));
}

TEST_F(Report, TrafficAndMemoryOfRanks) {
  ASSERT_THAT(run("a", {"train.steps=30", "--ranks", "3", "batch.global=9", "batch.micro=0"}), Succeeds());
  const Outcome o = report("a", {"--json"});
  ASSERT_THAT(o, Succeeds());
  const Json r = Json::parse(o.out);
  EXPECT_EQ(r["ranks"], 3);
  EXPECT_EQ(r["step"], 30);
  double sent = 0;
  for (const Json& record : records("a")) {
    if (record["split"] != "rank") continue;
    sent += record["comm/rest/all_to_all/sent_bytes"].get<double>();
  }
  EXPECT_GT(sent, 0);
  for (const Json& line : r["traffic"]) {
    if (line["group"] != "rest" || line["collective"] != "all_to_all") continue;
    EXPECT_EQ(line["sent_bytes_total"].get<double>(), sent);
    EXPECT_NEAR(line["sent_bytes_per_rank_and_step"].get<double>(), sent / 3 / 30, 1e-6);
    EXPECT_GE(line["sent_bytes_per_step_max"], line["sent_bytes_per_rank_and_step"]);
    sent = -1;
  }
  EXPECT_EQ(sent, -1) << "no line for rest/all_to_all";
  const Json memory = Json::parse(read_file(folder_ / "a/memory.json"));
  EXPECT_EQ(memory["step"], 30);
  ASSERT_EQ(memory["peak_bytes"].size(), 3u);
  double most = 0;
  for (const Json& rank : memory["peak_bytes"]) most = std::max(most, rank["total"].get<double>());
  EXPECT_EQ(r["memory"]["total"]["max_peak_bytes"].get<double>(), most);
  EXPECT_EQ(r["memory"]["total"]["rank_0_peak_bytes"], memory["peak_bytes"][0]["total"]);
  EXPECT_GT(r["rows"]["softmax.weight"].get<double>(), 0);
  const Outcome text = report("a");
  EXPECT_THAT(text.out, Names("GROUP", "all_to_all", "MEMORY, PEAK", "3 ranks"));
}

// The peak at the end of the log and that of the report are one number, also if the last validation needs the most.
TEST_F(Report, ThePeakIncludesTheLastValidation) {
  const Outcome o = run("a", {"train.steps=6", "train.eval_batch=64", "train.eval_every=0"});
  ASSERT_THAT(o, Succeeds());
  double before = 0;
  for (const Json& record : records("a"))
    if (record["split"] == "rank") before = record["memory/total_peak_bytes"];
  const double peak = Json::parse(report("a", {"--json"}).out)["memory"]["total"]["rank_0_peak_bytes"];
  EXPECT_GT(peak, before);
  EXPECT_THAT(o.err, HasSubstr("peak memory " + lmx::bytes_text(static_cast<int64_t>(peak))));
}

// While a run trains, the page loads itself again; at the end it does not.
TEST_F(Report, WatchesARunThatTrains) {
  Words words = command("a", {"train.steps=100000000"});
  const pid_t trains = start(words);
  while (!std::filesystem::exists(folder_ / "a/metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const pid_t watches = start({build_path("/bin/lmx"), "report", path("a"), "--watch", "1"}, path("out"));
  const auto page = [&] {
    return std::filesystem::exists(folder_ / "a/report.html") ? read_file(folder_ / "a/report.html") : "";
  };
  const auto refreshes = [&] { return page().find("http-equiv=\"refresh\" content=\"1\"") != std::string::npos; };
  while (!refreshes()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string first = page();
  while (page() == first || page().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(trains, SIGTERM);
  EXPECT_EQ(wait_for(trains), 143);
  EXPECT_EQ(wait_for(watches), 0);
  EXPECT_FALSE(refreshes());
  EXPECT_THAT(read_file(folder_ / "out"), Names("interrupted", "report   " + path("a") + "/report.html"));
  EXPECT_THAT(report("a", {"--watch", "1", "--json"}), Refuses("--json", "--watch"));
}

// The table at a run's end and that of the report have the same groups and bytes: both sum the records.
TEST_F(Report, AgreesWithTheRunsEnd) {
  const Outcome run_end = run("a", {"train.steps=33", "train.log_every=10", "checkpoint.every=8", "--ranks", "3",
                                    "batch.global=9", "batch.micro=0"});
  ASSERT_THAT(run_end, Succeeds());
  const auto rows = [](const std::string& text, const std::string& before_bytes) {
    std::map<std::string, double> sent;
    for (const Match& row : all_matches(text, "\n *([a-z]+) +(all_[a-z_]+) +" + before_bytes + "([0-9.]+) (k?)B "))
      sent[row[1] + " " + row[2]] = std::stod(row[3]) * (row[4].empty() ? 1 : 1000);
    return sent;
  };
  auto at_end = rows(run_end.err, "[0-9.]+ +"), reported = rows(report("a").out, "");
  EXPECT_EQ(at_end.size(), reported.size());
  for (const auto& [name, bytes] : reported)  // whole bytes below 1 kB, then rounded to two and three digits
    EXPECT_NEAR(at_end[name], bytes, bytes < 1000 ? 0 : 0.05 * bytes) << name;
  EXPECT_TRUE(reported.contains("control all_gather"));
  EXPECT_TRUE(reported.contains("checkpoint all_gather"));
  EXPECT_TRUE(reported.contains("rest all_to_all"));
}

// The staleness of a server's updates, summed over the train records.
TEST_F(Report, StalenessOfAServersUpdates) {
  ASSERT_EQ(run("a", {"train.steps=30", "train.log_every=10", "train.ema=0", "--ranks", "3",
                      "sync={all: {params: .*, strategy: param_server}}"})
                .code,
            0);
  std::map<std::string, double> expected;
  double updates = 0;
  for (const Json& record : records("a")) {
    if (record["split"] != "train") continue;
    for (const auto& [key, value] : record.items()) {
      if (!key.starts_with("all/staleness/")) continue;
      expected[key.substr(14)] += value.get<double>();
      updates += value.get<double>();
    }
  }
  ASSERT_FALSE(expected.empty());
  const Json r = Json::parse(report("a", {"--json"}).out);
  EXPECT_EQ(r["staleness"]["all"], Json(expected));
  const auto [behind, most] =
      *std::max_element(expected.begin(), expected.end(), [](auto& a, auto& b) { return a.second < b.second; });
  char line[64];
  std::snprintf(line, sizeof line, "\n%s +%.0f +%.1f %% +#{40}\n", behind.c_str(), most, 100 * most / updates);
  const Outcome text = report("a");
  EXPECT_THAT(text.out,
              AllOf(testing::ContainsRegex("\nSTALENESS, all +UPDATES +SHARE\n"), testing::ContainsRegex(line)));
}

// Each rank's quantisation errors are in its records, those of all ranks in the train records, and the totals of the
// run in the report.
TEST_F(Report, LossesOfCodecs) {
  ASSERT_EQ(run("a", {"train.steps=21", "--ranks", "3",
                      "sync={all: {params: .*, strategy: unique, codec: {kind: fp16, scale: 1e-4}}}"})
                .code,
            0);
  std::map<std::string, double> ranks, train;
  std::set<int> seen;
  for (const Json& record : records("a")) {
    for (const auto& [key, value] : record.items()) {
      if (!key.starts_with("codec/embedding.weight/")) continue;
      const std::string what = key.substr(key.rfind('/') + 1);
      (record["split"] == "rank" ? ranks : train)[what] += value.get<double>();
      if (record["split"] == "rank") seen.insert(record["rank"].get<int>());
    }
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_GT(ranks["underflow"], 0);
  EXPECT_GT(ranks["entries"], ranks["underflow"]);
  for (const char* what : {"entries", "underflow", "overflow"}) EXPECT_EQ(ranks[what], train[what]) << what;
  const Json line = Json::parse(report("a", {"--json"}).out)["codec"]["embedding.weight"];
  for (const char* what : {"entries", "underflow", "overflow"})
    EXPECT_EQ(line[what].get<double>(), ranks[what]) << what;
  EXPECT_GT(line["relative_error"], 0);
  EXPECT_LT(line["relative_error"], 1);
  EXPECT_THAT(report("a").out, Names("UNDERFLOWS", "embedding.weight"));
}

// Two ranks, two records of 2 steps and, after a resume, of 1 step. Unit 0 begins while the rank computes, unit 1
// afterwards.
TEST_F(Report, HiddenAndExposedTimes) {
  std::filesystem::create_directory(path("a"));
  write("a/provenance.json", R"({"starts":[{}]})");
  write("a/config.yaml", "comm: {name: mpi, ranks: 2}\n");
  const auto rank = [](int step, int number, int steps, double late) {
    return Json{{"step", step},
                {"split", "rank"},
                {"rank", number},
                {"steps", steps},
                {"comm/rest/all_gather/sent_bytes", 8},
                {"comm/rest/all_gather/received_bytes", 8},
                {"unit/0/softmax.bias/bytes", 1000},
                {"unit/0/softmax.bias/ready_s", 0.1},
                {"unit/0/softmax.bias/begin_s", 0.2},
                {"unit/0/softmax.bias/end_s", 0.5 + late},
                {"unit/1/embedding.weight/bytes", 3000},
                {"unit/1/embedding.weight/ready_s", 0.4},
                {"unit/1/embedding.weight/begin_s", 0.5 + late},
                {"unit/1/embedding.weight/end_s", 0.7 + late}}
               .dump() +
           "\n";
  };
  const auto train = [](int step, double busy, double exposed) {
    return Json{{"step", step}, {"split", "train"}, {"comm_s", busy}, {"comm_exposed_s", exposed}}.dump() + "\n";
  };
  write("a/metrics.jsonl", train(2, 0.9, 0.6) + rank(2, 0, 2, 0) + rank(2, 1, 2, 0.2) + train(4, 0.6, 0.3) +
                               rank(4, 0, 1, 0) + rank(4, 1, 1, 0.2));
  const Outcome o = report("a", {"--json"});
  ASSERT_THAT(o, Succeeds());
  const Json t = Json::parse(o.out)["comm_times"];
  EXPECT_NEAR(t["busy_s"].get<double>(), 1.5 / 3, 1e-9);
  EXPECT_NEAR(t["exposed_s"].get<double>(), 0.9 / 3, 1e-9);
  EXPECT_NEAR(t["hidden_s"].get<double>(), 0.6 / 3, 1e-9);
  EXPECT_NEAR(t["could_be_hidden_s"].get<double>(), 0.3, 1e-9);
  ASSERT_EQ(t["units"].size(), 2u);
  const Json &first = t["units"][0], &second = t["units"][1];
  EXPECT_EQ(first["first"], "softmax.bias");
  EXPECT_EQ(first["bytes"].get<double>(), 1000);
  EXPECT_NEAR(first["end_s"].get<double>(), 0.6, 1e-9);
  EXPECT_NEAR(first["hidden_s"].get<double>(), 0.2, 1e-9);
  EXPECT_NEAR(first["exposed_s"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(second["hidden_s"].get<double>(), 0);
  EXPECT_NEAR(second["exposed_s"].get<double>(), 0.2, 1e-9);
  EXPECT_THAT(report("a").out, Names("hidden behind computation", "200 ms", "softmax.bias"));
}

TEST_F(Report, TimesOfProcesses) {
  if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Outcome o = run("a", {"train.steps=14", "comm={name: mpi, ranks: 2}"});
  if (o.code == 2 && o.err.find("no MPI") != std::string::npos) GTEST_SKIP() << o.err;
  ASSERT_THAT(o, Succeeds());
  const Json t = Json::parse(report("a", {"--json"}).out)["comm_times"];
  EXPECT_GT(t["busy_s"].get<double>(), 0);
  EXPECT_GT(t["exposed_s"].get<double>(), 0);
  ASSERT_FALSE(t["units"].empty());
  for (const Json& unit : t["units"]) {
    EXPECT_GT(unit["bytes"].get<double>(), 0);
    EXPECT_LE(unit["ready_s"].get<double>(), unit["begin_s"].get<double>());
    EXPECT_NEAR(unit["hidden_s"].get<double>() + unit["exposed_s"].get<double>(),
                unit["end_s"].get<double>() - unit["begin_s"].get<double>(), 1e-9);
  }
}

TEST_F(Report, ALastLineThatAKillCutShort) {
  ASSERT_THAT(run("a", {"train.steps=30"}), Succeeds());
  const std::string whole = report("a", {"--json"}).out;
  write("a/metrics.jsonl", read_file(folder_ / "a/metrics.jsonl") + "{\"step\":37,\"spl");
  EXPECT_EQ(report("a", {"--json"}).out, whole);
  write("a/metrics.jsonl", "{\"step\":37,\"spl\n" + read_file(folder_ / "a/metrics.jsonl"));
  EXPECT_THAT(report("a"), Refuses("metrics.jsonl:1"));
}

TEST_F(Report, Mistakes) {
  EXPECT_THAT(report("nowhere"), Refuses(path("nowhere")));
  std::filesystem::create_directory(path("empty"));
  EXPECT_THAT(report("empty"), Refuses("/empty", "metrics.jsonl"));
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  write("a/provenance.json", "{");
  EXPECT_THAT(report("a"), Refuses("provenance.json"));
  write("a/provenance.json", "{\"starts\": [{\"time\": 5}]}");
  EXPECT_THAT(report("a"), Refuses(path("a"), "damaged", "string"));
}

// Fractions of a sweep's variance, compared with numbers calculated by hand.

using lmx::app::report::importance_of;

TEST(Importance, SharesOfVariance) {
  // Values 1, 3, 5, 7: the squared differences from the mean 4 sum to 20. Means by a: 2 and 6, 2 * (4 + 4) = 16; by b:
  // 3 and 5, 2 * (1 + 1) = 4.
  const auto shares = importance_of({"b", "a"}, {{"x", "1"}, {"y", "1"}, {"x", "2"}, {"y", "2"}}, {1, 3, 5, 7});
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].axis, "a");
  EXPECT_NEAR(shares[0].share, 16.0 / 20, 1e-12);
  EXPECT_EQ(shares[1].axis, "b");
  EXPECT_NEAR(shares[1].share, 4.0 / 20, 1e-12);
  EXPECT_NEAR(shares[0].chance, 1.0 / 3, 1e-12);
}

// An axis of one value, an axis on which no value is repeated, and points without a value give no estimate.
TEST(Importance, LeavesOutWhatCannotBeEstimated) {
  const auto shares = importance_of(
      {"same", "unique", "a"}, {{"s", "1", "x"}, {"s", "2", "x"}, {"s", "3", "y"}, {"s", "4", "y"}, {"s", "5", "z"}},
      {1, 1, 2, 2, NAN});
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].axis, "a");
  EXPECT_NEAR(shares[0].share, 1, 1e-12);
  EXPECT_TRUE(importance_of({"a"}, {{"1"}, {"2"}, {"1"}}, {3, 3, 3}).empty());
  EXPECT_TRUE(importance_of({"a"}, {{"1"}, {"2"}}, {3, 4}).empty());
}

// `lmx run` on several nodes: sums in two levels, and bytes by level in the metrics and in `lmx report`.

class LevelsTest : public RunTest {
 protected:
  // The sum of a value over the records of a run whose key ends in `end`.
  double sum_of(const std::string& dir, const std::string& end) const {
    double sum = 0;
    for (const Json& record : records(dir)) {
      for (const auto& [key, value] : record.items())
        if (key.starts_with("comm/rest/") && key.ends_with(end)) sum += value.get<double>();
    }
    return sum;
  }
  double last_ppl(const std::string& dir) const { return series(dir, "valid", "ppl").back(); }
  Outcome report(const std::string& dir, const Words& more = {}) const {
    return lmx(joined({"report", path(dir)}, more));
  }

  const Words two_nodes{"comm={name: virtual, ranks: 4, ranks_per_node: 2}"};
  const Words levels{"+sync=allreduce_levels"};
};

TEST_F(LevelsTest, FewerBytesCrossNodesAndTheModelIsNearlyTheSame) {
  Outcome o = run("flat", two_nodes);
  ASSERT_THAT(o, Succeeds());
  o = run("levels", joined(two_nodes, levels));
  ASSERT_THAT(o, Warns("in 2 nodes", "two levels: 2 nodes of 2 ranks", "sent to other nodes"));
  const double flat = sum_of("flat", "/sent_between_nodes_bytes"),
               crossed = sum_of("levels", "/sent_between_nodes_bytes");
  EXPECT_GT(crossed, 0);
  EXPECT_LT(crossed, 0.6 * flat);  // half, and the indices of rows, which are exchanged in one level
  EXPECT_EQ(crossed, sum_of("levels", "/received_between_nodes_bytes"));
  EXPECT_NEAR(last_ppl("levels"), last_ppl("flat"), 0.01 * last_ppl("flat"));
  EXPECT_NE(model("levels"), model("flat"));  // another order of additions
}

TEST_F(LevelsTest, OneNodeChangesNothing) {
  ASSERT_THAT(run("one", {"--ranks", "4"}), Succeeds());
  ASSERT_THAT(run("levels", joined({"--ranks", "4"}, levels)), Succeeds());
  EXPECT_THAT(read_file(folder_ / "one/metrics.jsonl"), Not(HasSubstr("between_nodes")));
  EXPECT_EQ(model("levels"), model("one"));
  EXPECT_EQ(metrics("levels"), metrics("one"));
}

TEST_F(LevelsTest, ProcessesAndThreadsGiveTheSameBits) {
  ASSERT_THAT(run("v", joined(two_nodes, levels)), Succeeds());
  for (const std::string group : {"gloo", "mpi"}) {
    const Outcome o = run(group, joined(levels, {"comm={name: " + group + ", ranks: 4, ranks_per_node: 2}"}));
    if (o.code == 2 && o.err.find("no ") != std::string::npos) continue;
    ASSERT_THAT(o, Succeeds());
    EXPECT_EQ(model(group), model("v")) << group;
    EXPECT_EQ(metrics(group), metrics("v")) << group;
  }
}

TEST_F(LevelsTest, AResumedRunHasTheSameBitsAndBytes) {
  const Words words = joined(joined(two_nodes, levels), {"sync.rest.codec.kind=fp16"});
  ASSERT_THAT(run("whole", words), Succeeds());
  ASSERT_THAT(run("cut", joined(words, {"--until", "53"})), Succeeds());
  ASSERT_THAT(run("cut", joined(words, {"--resume", path("cut")})), Succeeds());
  EXPECT_EQ(model("cut"), model("whole"));
  EXPECT_EQ(sum_of("cut", "/sent_between_nodes_bytes"), sum_of("whole", "/sent_between_nodes_bytes"));
}

TEST_F(LevelsTest, TheReportShowsBytesByLevel) {
  ASSERT_THAT(run("levels", joined(joined(two_nodes, levels), {"train.steps=30"})), Succeeds());
  ASSERT_THAT(run("one", {"--ranks", "4", "train.steps=30"}), Succeeds());
  EXPECT_THAT(report("levels").out, HasSubstr("SENT TO OTHER NODES"));
  EXPECT_THAT(report("one").out, Not(HasSubstr("SENT TO OTHER NODES")));
  double crossed = 0;
  const Json json = Json::parse(report("levels", {"--json"}).out);
  for (const Json& line : json["traffic"])
    if (line["group"] == "rest") crossed += line["sent_between_nodes_bytes_per_rank_and_step"].get<double>();
  EXPECT_NEAR(crossed, sum_of("levels", "/sent_between_nodes_bytes") / 4 / 30, 1e-6);
  EXPECT_THAT(report("one", {"--json"}).out, Not(HasSubstr("between_nodes")));
  // The page's numbers, which it shows beside all bytes.
  const auto traffic_of = [&](const std::string& dir) {
    const std::string page = read_file(folder_ / dir / "report.html"),
                      begin = R"(<script id="data" type="application/json">)";
    const size_t at = page.find(begin) + begin.size();
    return Json::parse(page.substr(at, page.find("</script>", at) - at))["runs"][0]["traffic"];
  };
  double shown = 0;
  for (const Json& line : traffic_of("levels"))
    if (line["group"] == "rest") shown += line["sent_between_nodes"].get<double>();
  EXPECT_NEAR(shown, crossed, 1e-4 * crossed);
  for (const Json& line : traffic_of("one")) EXPECT_FALSE(line.contains("sent_between_nodes"));
}

TEST_F(LevelsTest, WrongSettingsAreOneError) {
  for (const auto& [words, parts] : std::vector<std::pair<Words, Words>>{
           {{"comm={name: virtual, ranks: 4, ranks_per_node: 3}"},
            {"levels: 2", "comm.ranks_per_node", "divisor of 4"}},
           {{"comm={name: virtual, ranks: 4, ranks_pre_node: 2}"}, {"ranks_pre_node", "'ranks_per_node'?"}},
           {{"--ranks", "4", "sync.rest.codec.kind=one_bit"}, {"sync.rest", "residuals", "levels: 1"}}}) {
    const Outcome o = run("wrong", joined(words, levels));
    EXPECT_EQ(o.code, 2) << o.err;
    for (const std::string& part : parts) EXPECT_THAT(o.err, HasSubstr(part));
    EXPECT_EQ(o.err.find("error:"), o.err.rfind("error:")) << o.err;
    EXPECT_FALSE(std::filesystem::exists(path("wrong")));
  }
}

}  // namespace

}  // namespace lmx_test
