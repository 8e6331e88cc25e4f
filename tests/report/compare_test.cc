// lmx compare: the first step and tensor at which two runs differ, and curves over seeds.
#include <cmath>

#include "app/records/half_interval.h"
#include "app/report/sides.h"
#include "lmx/tensor.h"
#include "process/report_fixture.h"

namespace lmx_test {
namespace {

class Compare : public ReportPageTest {
 protected:
  Outcome compare(const Words& more) const { return lmx(joined({"compare"}, more)); }
  // The result as JSON. The exit code of --exit-code agrees with it.
  Json compared(const Words& more) const {
    const Outcome o = compare(joined(more, {"--json", "--exit-code"}));
    EXPECT_EQ(o.err, "");
    const Json json = Json::parse(o.out);
    EXPECT_EQ(o.code, json["differ"].get<bool>() ? 1 : 0);
    return json;
  }
  void refused(const Words& more, const Words& facts) const {
    EXPECT_THAT(compare(more), Refuses(NamesMatcher(facts)));
  }
  void short_run(const std::string& dir, const Words& more = {}) const {
    ASSERT_THAT(run(dir, joined(more, {"train.eval_every=10", "checkpoint.every=10", "checkpoint.keep_last=4"})),
                Succeeds());
  }
  lmx::StateDict parameters(const std::string& dir, int step) const {
    return lmx::load_safetensors(path(dir) + "/checkpoints/step-" + std::to_string(step) + "/model.safetensors",
                                 lmx::Allocator::cpu());
  }
  // A run that consists of validations at the steps 10, 20, ..., with these values.
  void make_validations(const std::string& dir, int seed, const std::vector<double>& nll) {
    std::vector<Json> records;
    for (size_t i = 0; i < nll.size(); ++i)
      records.push_back({{"step", 10 * (i + 1)}, {"split", "valid"}, {"nll_nat", nll[i]}});
    make_run(dir, records, "seed: " + std::to_string(seed) + "\nclip: " + dir.substr(0, 1) + "\n");
  }
};

TEST_F(Compare, EqualRuns) {
  short_run("a", {"train.steps=20"});
  short_run("b", {"train.steps=20"});
  const Json c = compared({path("a"), path("b")});
  EXPECT_EQ(c["differ"], false);
  EXPECT_EQ(c["recipe"], Json::array());
  EXPECT_EQ(c["provenance"], Json::array());
  const Json& pair = c["pairs"][0];
  EXPECT_EQ(pair["metrics"],
            (Json{{"compared", 5}, {"equal_until", 20}}));  // training at 7, 14, 20, validation at 10, 20
  EXPECT_EQ(pair["checkpoints"], (Json{{"equal", {10, 20}}}));
  EXPECT_THAT(compare({path("a"), path("b")}).out,
              Names("The recipes are equal.", "5 records cover equal steps, and all are equal",
                    "equal bit by bit at steps 10, 20"));
}

TEST_F(Compare, AnotherSeed) {
  short_run("a", {"train.steps=20"});
  short_run("b", {"train.steps=20", "seed=2", "threads=2"});
  const Json c = compared({path("a"), path("b")});
  EXPECT_EQ(c["differ"], true);
  EXPECT_EQ(c["recipe"],
            (Json{{{"key", "seed"}, {"a", "1"}, {"b", "2"}}, {{"key", "threads"}, {"a", "1"}, {"b", "2"}}}));
  EXPECT_EQ(c["provenance"], (Json{{{"key", "compute threads"}, {"a", "1"}, {"b", "2"}}}));
  const Json& metrics = c["pairs"][0]["metrics"];
  EXPECT_EQ(metrics["step"], 7);
  EXPECT_FALSE(metrics.contains("equal_until"));
  std::istringstream line(read_file(folder_ / "a/metrics.jsonl"));
  const Json first = Json::parse(line.str().substr(0, line.str().find('\n')));
  for (const Json& field : metrics["fields"]) {
    EXPECT_EQ(field["a"], first[field["field"].get<std::string>()]);
    EXPECT_NE(field["a"], field["b"]);
    EXPECT_THAT(field["field"].get<std::string>(), Not(testing::AnyOf("step_s", "words_per_s", "comm_s", "lr")));
  }
  ASSERT_GT(metrics["fields"].size(), 5U);
  EXPECT_THAT(compare({path("a"), path("b")}).out,
              HasSubstr("... " + std::to_string(metrics["fields"].size() - 5) + " more; --json lists all\n"));
  const Json& tensor = c["pairs"][0]["checkpoints"]["different"][0];
  EXPECT_EQ(c["pairs"][0]["checkpoints"]["step"], 10);
  EXPECT_EQ(tensor["tensor"], "embedding.weight");
  EXPECT_EQ(tensor["shape_a"], "(60, 12) f32");
  const lmx::StateDict a = parameters("a", 10), b = parameters("b", 10);
  const auto x = a.at("embedding.weight").values<float>(), y = b.at("embedding.weight").values<float>();
  double most = 0, squares = 0, squares_a = 0;
  int64_t elements = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double distance = std::fabs(static_cast<double>(x[i]) - y[i]);
    most = std::max(most, distance);
    squares += distance * distance;
    squares_a += static_cast<double>(x[i]) * x[i];
    elements += x[i] != y[i];
  }
  EXPECT_EQ(tensor["index"], (Json{0, 0}));
  EXPECT_EQ(tensor["a"], x[0]);
  EXPECT_EQ(tensor["b"], y[0]);
  EXPECT_EQ(tensor["elements"], elements);
  EXPECT_EQ(tensor["max_abs"], most);
  EXPECT_NEAR(tensor["relative"].get<double>(), std::sqrt(squares / squares_a), 1e-12);
}

// The runs are equal up to the checkpoint, and the recipe shows both values of the key.
TEST_F(Compare, ALearningRateThatAResumeChanges) {
  short_run("a", {"train.steps=30"});
  short_run("b", {"train.steps=20"});
  ASSERT_THAT(lmx({"run", path("tiny.yaml"), "--resume", path("b"), "train.steps=30", "train.eval_every=10",
                   "checkpoint.every=10", "checkpoint.keep_last=4", "--change", "optimizer.lr=0.001"}),
              Succeeds());
  const Json c = compared({path("a"), path("b")});
  EXPECT_EQ(c["recipe"], (Json{{{"key", "optimizer.lr"}, {"a", "0.01"}, {"b", "0.01; 0.001 from step 20 on"}}}));
  EXPECT_EQ(c["provenance"], (Json{{{"key", "starts"}, {"a", "1"}, {"b", "2"}}}));
  const Json& pair = c["pairs"][0];
  EXPECT_EQ(pair["metrics"]["equal_until"], 20);
  EXPECT_EQ(pair["metrics"]["step"], 28);
  Words fields;
  for (const Json& field : pair["metrics"]["fields"]) fields.push_back(field["field"]);
  EXPECT_THAT(fields, testing::IsSupersetOf({"lr", "nll_nat"}));
  EXPECT_EQ(pair["checkpoints"]["equal"], (Json{10, 20}));
  EXPECT_EQ(pair["checkpoints"]["step"], 30);
  EXPECT_EQ(c["curve"].back()["step"], 30);
}

// The second start has resumed from step 10, so the run has no steps with the first change.
TEST_F(Compare, AResumeFromAnEarlierCheckpointDiscardsChanges) {
  make_validations("1a", 1, {4});
  make_validations("1b", 1, {4});
  write("1b/provenance.json",
        R"({"starts":[{"changes":[{"key":"clip","before":"0.5","now":"3","step":20}]},
                      {"changes":[{"key":"clip","before":"0.5","now":"1","step":10}]}]})");
  EXPECT_EQ(compared({path("1a"), path("1b")})["recipe"],
            (Json{{{"key", "clip"}, {"a", "1"}, {"b", "0.5; 1 from step 10 on"}}}));
}

// Four ranks add the gradients of the four sequences as one rank does, or their results differ: both is shown.
TEST_F(Compare, AnotherNumberOfRanks) {
  const Words same{"train.steps=20", "loss.name=full_softmax", "~loss.samples", "model.dropout=0",
                   "batch={global: 4, micro: 1}"};
  short_run("a", same);
  short_run("b", joined(same, {"--ranks", "4"}));
  const Json c = compared({path("a"), path("b")});
  EXPECT_THAT(c["provenance"].dump(), HasSubstr(R"({"a":"1","b":"4","key":"ranks"})"));
  EXPECT_EQ(c["pairs"][0]["checkpoints"]["equal"] == Json({10, 20}), model("a", 20) == model("b", 20));
  EXPECT_EQ(c["differ"], metrics("a") != metrics("b") || model("a", 20) != model("b", 20));
}

// Processes compute the bits of virtual ranks, so only the recipe differs.
TEST_F(Compare, RanksThatAreProcesses) {
  short_run("a", {"train.steps=20", "--ranks", "2"});
  const Outcome o = run("b", {"train.steps=20", "train.eval_every=10", "checkpoint.every=10", "checkpoint.keep_last=4",
                              "comm={name: gloo, ranks: 2}"});
  if (o.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << o.err;
  const Json c = compared({path("a"), path("b")});
  EXPECT_EQ(c["differ"], false);
  EXPECT_THAT(c["recipe"].dump(), HasSubstr(R"("key":"comm.name")"));
  EXPECT_EQ(c["pairs"][0]["checkpoints"]["equal"], (Json{10, 20}));
}

// Tensors that one of the runs lacks, and tensors of other shapes.
TEST_F(Compare, OtherModels) {
  short_run("a", {"train.steps=10"});
  short_run("b", {"train.steps=10", "model.cells=17", "optimizer={name: sgd, lr: 0.1}"});
  const Json c = compared({path("a"), path("b")})["pairs"][0]["checkpoints"];
  EXPECT_THAT(c["only_a"].dump(), HasSubstr("train_state: optimizer/embedding.weight"));
  EXPECT_EQ(c["only_b"], Json::array());
  bool found = false;
  for (const Json& d : c["different"]) {
    if (d["tensor"] != "lstm.0.bias") continue;
    found = true;
    EXPECT_EQ(d["shape_a"], "(64) f32");
    EXPECT_EQ(d["shape_b"], "(68) f32");
    EXPECT_FALSE(d.contains("index"));
  }
  EXPECT_TRUE(found);
  EXPECT_THAT(compare({path("a"), path("b")}).out, Names("(64) f32 and (68) f32", "only A has"));
}

// The points of a sweep as two sides of three seeds each.
TEST_F(Compare, PointsOfASweep) {
  ASSERT_THAT(lmx({"sweep", path("tiny.yaml"), "optimizer.lr=0.001,0.03", "train.steps=20", "train.eval_every=10",
                   "--seeds", "3", "--out", path("s")}),
              Succeeds());
  Words words, to{"--to"};
  for (const auto& entry : std::filesystem::directory_iterator(path("s/points"))) {
    if (!entry.is_directory()) continue;
    (entry.path().string().find("0.001") != std::string::npos ? words : to).push_back(entry.path().string());
  }
  ASSERT_EQ(words.size(), 3u);
  words.insert(words.end(), to.begin(), to.end());
  const Json c = compared(words);
  EXPECT_EQ(c["recipe"], (Json{{{"key", "optimizer.lr"}, {"a", "0.001"}, {"b", "0.03"}}}));
  EXPECT_EQ(c["pairs"].size(), 3u);
  EXPECT_EQ(c["paired"], true);
  EXPECT_EQ(c["differ"], true);
  EXPECT_EQ(c["curve"].size(), 2u);
  EXPECT_EQ(c["curve"][1]["a"]["values"].size(), 3u);
  EXPECT_THAT(compare(words).out, Names("METRICS DIFFER AT STEP", " *\n", "differs beyond the noise"));
  // A whole sweep is no side, because its points are two configurations.
  refused({path("s"), words[0]}, {"6 runs of side A", "optimizer.lr", "name the folders of one"});
}

// Differences of pairs: 1, 1.1, 0.9 at the first step, so 1 ± 4.3027 x 0.1 / sqrt(3); 0.3, -0.1, 0.1 at the second one.
TEST_F(Compare, SeedsInPairs) {
  make_validations("1a", 1, {4, 3, 2.9});  // two runs have no third step, so it is not on the curve
  make_validations("1b", 2, {5, 3.5});
  make_validations("1c", 3, {6, 2.5});
  make_validations("2c", 3, {6.9, 2.6, 2});
  make_validations("2a", 1, {5, 3.3, 2});
  make_validations("2b", 2, {6.1, 3.4, 2});
  const Words words{path("1a"), path("1b"), path("1c"), "--to", path("2c"), path("2a"), path("2b")};
  const Json c = compared(words);
  EXPECT_EQ(c["paired"], true);
  ASSERT_EQ(c["curve"].size(), 2u);
  const Json& first = c["curve"][0];
  EXPECT_NEAR(first["a"]["mean"], 5, 1e-12);
  EXPECT_NEAR(first["a"]["half_interval"], 4.302653 / std::sqrt(3), 1e-6);
  EXPECT_NEAR(first["difference"]["mean"], 1, 1e-12);
  EXPECT_NEAR(first["difference"]["half_interval"], 0.4302653 / std::sqrt(3), 1e-6);
  EXPECT_EQ(first["difference"]["significant"], true);
  EXPECT_EQ(c["curve"][1]["difference"]["significant"], false);
  EXPECT_EQ(c["differ"], false);  // at the last step
  const std::string out = compare(words).out;
  EXPECT_THAT(out, Names("5 ± 2.5", "6 ± 2.4", "+1 ± 0.25 *", "that of pairs of equal seeds",
                         "does not differ beyond the noise"));
  EXPECT_THAT(out, Not(HasSubstr("0.1 ± 0.5 *")));
}

// Other seeds: Welch's test, whose interval contains 0 although that of pairs would not.
TEST_F(Compare, SeedsWithoutPairs) {
  for (int seed = 1; seed <= 3; ++seed) {
    make_validations("1" + std::to_string(seed), seed, {3.0 + seed});
    make_validations("2" + std::to_string(seed), seed + 3, {4.0 + seed});
  }
  const Words words{path("11"), path("12"), path("13"), "--to", path("21"), path("22"), path("23")};
  const Json c = compared(words);
  EXPECT_EQ(c["paired"], false);
  EXPECT_EQ(c["pairs"], Json::array());
  EXPECT_NEAR(c["curve"][0]["difference"]["half_interval"], 2.776445 * std::sqrt(2.0 / 3), 1e-6);
  EXPECT_EQ(c["differ"], false);
  EXPECT_THAT(compare(words).out, HasSubstr("Welch's test, because the seeds differ"));
  // The noise is not known if a side has one run.
  const Outcome one = compare({path("11"), path("12"), "--to", path("21"), "--exit-code"});
  EXPECT_EQ(one.code, 1);
  EXPECT_THAT(one.out, HasSubstr("The noise between seeds is not known"));
}

TEST_F(Compare, ThePageHasBothSides) {
  make_validations("1a", 1, {4, 3});
  make_validations("2a", 1, {5, 3});
  ASSERT_THAT(compare({path("1a"), path("2a"), "--html", path("page.html")}), Succeeds());
  EXPECT_EQ(data_of("page.html")["runs"].size(), 2u);
}

TEST_F(Compare, MistakesAreNamed) {
  make_validations("1a", 1, {4});
  make_validations("1b", 1, {4});
  make_validations("2a", 2, {4});
  refused({path("1a")}, {"1 is given", "--to"});
  refused({path("1a"), path("1b"), path("2a")}, {"3 are given", "--to"});
  refused({path("1a"), path("none")}, {"no run directory", "none"});
  refused({path("1a"), path("2a"), "--to", path("1b")}, {"2 runs of side A", "clip"});
  refused({path("1a"), path("1b"), "--to", path("2a")}, {"1a", "1b", "seed 1", "leave out one"});
  refused({path("1a"), path("2a"), "--metric", "valid.pppl"}, {"pppl", "ppl"});
  std::filesystem::create_directories(path("1a/checkpoints/step-5"));
  std::filesystem::create_directories(path("1b/checkpoints/step-5"));
  write("1a/checkpoints/step-5/model.safetensors", "damaged");
  write("1b/checkpoints/step-5/model.safetensors", "damaged");
  refused({path("1a"), path("1b")}, {"step-5/model.safetensors"});
}

using lmx::app::RunRecord;
using lmx::app::report::record_divergence;

// Means over other steps, times and bytes are not compared, and NaN is equal to NaN.
TEST(RecordDivergence, ComparesResultsOfEqualSteps) {
  const auto train = [](int64_t step, double nll, double seconds) {
    return RunRecord{step, "train", {{"nll_nat", nll}, {"step_s", seconds}, {"comm_sent_bytes", seconds}}};
  };
  const std::vector<RunRecord> a{train(5, 3, 1), train(10, 2, 1), {10, "valid", {{"nll_nat", NAN}, {"bpb", 1}}}};
  const std::vector<RunRecord> b{train(10, 7, 2), {10, "valid", {{"nll_nat", NAN}, {"train_s", 3}}}, train(15, 1, 1)};
  const auto same = record_divergence(a, b);
  EXPECT_EQ(same.compared, 1u);
  EXPECT_TRUE(same.fields.empty());
  EXPECT_EQ(same.equal_until, 10);
  std::vector<RunRecord> c = a;
  c[1].values["nll_nat"] = std::nextafter(2.0, 3.0);
  const auto other = record_divergence(a, c);
  EXPECT_EQ(other.compared, 3u);
  EXPECT_EQ(other.step, 10);
  EXPECT_EQ(other.split, "train");
  EXPECT_EQ(other.equal_until, 5);
  ASSERT_EQ(other.fields.size(), 1u);
  EXPECT_EQ(other.fields[0].name, "nll_nat");
}

}  // namespace
}  // namespace lmx_test
