// `lmx run` on several nodes: sums in two levels, and bytes by level in the metrics and in `lmx report`.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class LevelsTest : public RunTest {
 protected:
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string lines_of(const std::string& dir) const { return read_file(folder_ / dir / "metrics.jsonl"); }
  // The sum of a value over the records of a run whose key ends in `end`.
  double sum_of(const std::string& dir, const std::string& end) const {
    double sum = 0;
    std::istringstream lines(lines_of(dir));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      for (const auto& [key, value] : record.items())
        if (key.starts_with("comm/rest/") && key.ends_with(end)) sum += value.get<double>();
    }
    return sum;
  }
  double last_ppl(const std::string& dir) const {
    double ppl = 0;
    std::istringstream lines(lines_of(dir));
    for (std::string line; std::getline(lines, line);)
      if (const Json record = Json::parse(line); record["split"] == "valid") ppl = record["ppl"];
    return ppl;
  }
  Outcome report(const std::string& dir, const Words& more = {}) const {
    return run_process(with({build_path("/bin/lmx"), "report", path(dir)}, more), environment());
  }

  const Words two_nodes{"comm={name: virtual, ranks: 4, ranks_per_node: 2}"};
  const Words levels{"+sync=allreduce_levels"};
};

TEST_F(LevelsTest, FewerBytesCrossNodesAndTheModelIsNearlyTheSame) {
  Outcome o = run("flat", two_nodes);
  ASSERT_EQ(o.code, 0) << o.err;
  o = run("levels", with(two_nodes, levels));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, Names("in 2 nodes", "two levels: 2 nodes of 2 ranks", "sent to other nodes"));
  const double flat = sum_of("flat", "/sent_between_nodes_bytes"),
               crossed = sum_of("levels", "/sent_between_nodes_bytes");
  EXPECT_GT(crossed, 0);
  EXPECT_LT(crossed, 0.6 * flat);  // half, and the indices of rows, which are exchanged in one level
  EXPECT_EQ(crossed, sum_of("levels", "/received_between_nodes_bytes"));
  EXPECT_NEAR(last_ppl("levels"), last_ppl("flat"), 0.01 * last_ppl("flat"));
  EXPECT_NE(model("levels"), model("flat"));  // another order of additions
}

TEST_F(LevelsTest, OneNodeChangesNothing) {
  ASSERT_EQ(run("one", {"--ranks", "4"}).code, 0);
  ASSERT_EQ(run("levels", with({"--ranks", "4"}, levels)).code, 0);
  EXPECT_THAT(lines_of("one"), Not(HasSubstr("between_nodes")));
  EXPECT_EQ(model("levels"), model("one"));
  EXPECT_EQ(metrics("levels"), metrics("one"));
}

TEST_F(LevelsTest, ProcessesAndThreadsGiveTheSameBits) {
  const Outcome threads = run("v", with(two_nodes, levels));
  ASSERT_EQ(threads.code, 0) << threads.err;
  for (const std::string group : {"gloo", "mpi"}) {
    const Outcome o = run(group, with(levels, {"comm={name: " + group + ", ranks: 4, ranks_per_node: 2}"}));
    if (o.code == 2 && o.err.find("no ") != std::string::npos) continue;
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(model(group), model("v")) << group;
    EXPECT_EQ(metrics(group), metrics("v")) << group;
  }
}

TEST_F(LevelsTest, AResumedRunHasTheSameBitsAndBytes) {
  const Words words = with(with(two_nodes, levels), {"sync.rest.codec.kind=fp16"});
  ASSERT_EQ(run("whole", words).code, 0);
  ASSERT_EQ(run("cut", with(words, {"--until", "53"})).code, 0);
  const Outcome o = run("cut", with(words, {"--resume", path("cut")}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(model("cut"), model("whole"));
  EXPECT_EQ(sum_of("cut", "/sent_between_nodes_bytes"), sum_of("whole", "/sent_between_nodes_bytes"));
}

TEST_F(LevelsTest, TheReportShowsBytesByLevel) {
  ASSERT_EQ(run("levels", with(with(two_nodes, levels), {"train.steps=30"})).code, 0);
  ASSERT_EQ(run("one", {"--ranks", "4", "train.steps=30"}).code, 0);
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
    const Outcome o = run("wrong", with(words, levels));
    EXPECT_EQ(o.code, 2) << o.err;
    for (const std::string& part : parts) EXPECT_THAT(o.err, HasSubstr(part));
    EXPECT_EQ(o.err.find("error:"), o.err.rfind("error:")) << o.err;
    EXPECT_FALSE(std::filesystem::exists(path("wrong")));
  }
}

}  // namespace
}  // namespace lmx_test
