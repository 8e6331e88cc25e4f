// lmx sweep: points, outcomes, tables, errors.
#include <cmath>

#include "process/sweep_fixture.h"
#include "process/terminal_process.h"

namespace lmx_test {
namespace {

class Sweep : public SweepTest {
 protected:
  static constexpr const char* kShort = "train.steps=20";
};

TEST_F(Sweep, GridWithSeedsEndsInATable) {
  const Outcome o =
      sweep("out", {kShort, "optimizer.lr=0.001,0.02", "model.cells=8,16", "--seeds", "2", "--jobs", "2"});
  ASSERT_THAT(o, Succeeds());
  // The last axis varies fastest, and seeds fastest of all.
  EXPECT_THAT(ids("out"),
              ElementsAre("0-lr=0.001-cells=8-seed=1", "1-lr=0.001-cells=8-seed=2", "2-lr=0.001-cells=16-seed=1",
                          "3-lr=0.001-cells=16-seed=2", "4-lr=0.02-cells=8-seed=1", "5-lr=0.02-cells=8-seed=2",
                          "6-lr=0.02-cells=16-seed=1", "7-lr=0.02-cells=16-seed=2"));
  EXPECT_EQ(count_ends("out", "done"), 8u);
  std::map<std::string, double> value;
  for (const auto& [id, event] : ends("out")) {
    value[id] = event["value"];
    EXPECT_EQ(event["value"].dump(), value_at_end("out", id));
    EXPECT_EQ(event["step"], 20);
  }
  EXPECT_NE(value["4-lr=0.02-cells=8-seed=1"], value["5-lr=0.02-cells=8-seed=2"]);
  EXPECT_THAT(read_file(folder_ / "out/points/6-lr=0.02-cells=16-seed=1.yaml"), Names("cells: 16", "lr: 0.02"));

  // Two values: t(0.975, 1) = 12.7062, s / sqrt(2) = |a - b| / 2.
  const double a = value["4-lr=0.02-cells=8-seed=1"], b = value["5-lr=0.02-cells=8-seed=2"];
  std::istringstream lines(read_file(folder_ / "out/table.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "optimizer.lr,model.cells,valid ppl,sd,low,high,n,best,within_noise,values,outcomes");
  int best = 0, rows = 0;
  for (; std::getline(lines, line); ++rows) {
    best += line.find(",2,1,") != std::string::npos;
    if (!line.starts_with("0.02,8,")) continue;
    double mean = 0, low = 0, high = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "0.02,8,%lf,%*f,%lf,%lf,", &mean, &low, &high), 3) << line;
    EXPECT_DOUBLE_EQ(mean, (a + b) / 2);
    EXPECT_NEAR(high - mean, 12.706204736 * std::fabs(a - b) / 2, 1e-6);
    EXPECT_NEAR(mean - low, high - mean, 1e-9);
    EXPECT_THAT(line, testing::EndsWith("2 done"));
  }
  EXPECT_EQ(rows, 4);
  EXPECT_EQ(best, 1);
  EXPECT_THAT(o.out, Names("optimizer.lr \\ model.cells  8", " ± ", "*", "sweep " + path("out")));
  EXPECT_THAT(o.err, AllOf(Names("point 8/8 ", ": done, valid ppl "), Not(HasSubstr("\033["))));
  EXPECT_THAT(read_file(folder_ / "out/table.md"), Names("| 0.02 | 16 |", "Welch"));
}

// The report reads the recipe of the sweep, which may name any plugin.
TEST_F(Sweep, AReportKnowsItsPlugins) {
  ASSERT_EQ(
      sweep("out", {"train.steps=3", "optimizer.lr=0.001,0.02", "--seeds", "2", "comm={name: virtual, ranks: 2}"}).code,
      0);
  EXPECT_THAT(run_lmx({"report", path("out")}, environment()), Succeeds());
  const Outcome latex = run_lmx({"report", path("out"), "--format", "latex"}, environment());
  EXPECT_THAT(latex, Succeeds());
  EXPECT_THAT(latex.out,
              AllOf(testing::StartsWith("\\begin{tabular}"), HasSubstr("(2)"), Not(HasSubstr("report.html"))));
}

TEST_F(Sweep, AReportShowsIt) {
  ASSERT_THAT(sweep("out", {"train.steps=12", "optimizer.lr=0.001,0.02", "train.max_loss=0,0.01"}), Succeeds());
  ASSERT_THAT(run_lmx({"report", path("out")}, environment()), Prints("optimizer.lr", "diverged", "out/report.html"));
  const std::string page = read_file(folder_ / "out/report.html");
  EXPECT_THAT(page, Names("\"metric\":\"valid ppl\"", "\"lower\":true", "\"name\":\"train.max_loss\"",
                          "\"outcome\":\"diverged\"", "\"outcome\":\"done\""));
  EXPECT_THAT(run_lmx({"report", path("out"), "--json", "--format", "csv"}, environment()),
              Refuses("--format", "--json"));
  EXPECT_THAT(run_lmx({"report", path("out"), "--charts", path("charts")}, environment()), Refuses("is a sweep"));
}

// `lmx report SWEEP --json` prints the table with every digit, as `lmx sweep --json` does at the end.
TEST_F(Sweep, AReportPrintsItsTableAsJson) {
  const Outcome swept = sweep("out", {"train.steps=12", "optimizer.lr=0.001,0.02", "--seeds", "2", "--json"});
  ASSERT_THAT(swept, Succeeds());
  const Outcome o = run_lmx({"report", path("out"), "--json"}, environment());
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(o.out, swept.out);
  EXPECT_FALSE(fs::exists(path("out/report.html")));
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json["metric"], "valid.ppl");
  ASSERT_EQ(json["configurations"].size(), 2u);
  for (size_t c = 0; c < 2; ++c) {
    const Json& values = json["configurations"][c]["values"];
    ASSERT_EQ(values.size(), 2u);
    for (size_t seed = 0; seed < 2; ++seed)
      EXPECT_EQ(values[seed].dump(), value_at_end("out", ids("out")[2 * c + seed]));
  }
}

TEST_F(Sweep, ARateThatIsTooHighIsADivergence) {
  ASSERT_THAT(sweep("out", {kShort, "optimizer={name: sgd}", "optimizer.lr=0.1,1e30"}), Succeeds());
  EXPECT_EQ(ends("out").at("0-lr=0.1")["outcome"], "done");
  const auto diverged = ends("out").at("1-lr=1e30");
  EXPECT_EQ(diverged["outcome"], "diverged");
  EXPECT_TRUE(diverged["value"].is_null());
}

TEST_F(Sweep, OutcomesAreResults) {
  const Outcome o = sweep("out", {kShort, "train.max_loss=0,0.01", "--metric", "train.nll_nat"});
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(ends("out").at("0-max_loss=0")["outcome"], "done");
  const auto diverged = ends("out").at("1-max_loss=0.01");
  EXPECT_EQ(diverged["outcome"], "diverged");
  EXPECT_THAT(diverged["reason"], Names("train.max_loss"));
  EXPECT_TRUE(diverged["value"].is_null());
  EXPECT_THAT(o.out, Names("train nll_nat", "diverged"));
  EXPECT_THAT(read_file(folder_ / "out/table.csv"), HasSubstr("0.01,,,,,0,0,0,,diverged\n"));
  // A diverged point is a result and is not tried again.
  const size_t before = events("out").size();
  ASSERT_THAT(resume("out", {"--retry", "3"}), Succeeds());
  EXPECT_EQ(events("out").size(), before);
}

TEST_F(Sweep, WantOfMemoryIsAnOutcome) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory needs more addresses than this test's limit";
#endif
  if (on_path("prlimit").empty()) GTEST_SKIP() << "there is no prlimit (Debian: util-linux)";
  Words limited{"prlimit", "--as=3000000000"};
  for (const std::string& word : sweep_words("out", {"train.steps=5", "model.projection=0", "model.cells=16,20000"}))
    limited.push_back(word);
  const Outcome o = run_process(limited, environment());
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(ends("out").at("0-cells=16")["outcome"], "done");
  EXPECT_EQ(ends("out").at("1-cells=20000")["outcome"], "out_of_memory");
  EXPECT_THAT(o.out, HasSubstr("out_of_memory"));
}

// A folder with the name of a checkpoint causes a failure that can be removed.
TEST_F(Sweep, FailuresAreTriedAgain) {
  const Words more{kShort, "seed=1,2,3", "checkpoint.every=5"};
  const std::string bad = "out/points/1-seed=2/checkpoints";
  const auto block = [&] {
    fs::create_directories(folder_ / "out/points/1-seed=2");
    write(bad, "a file where a folder is wanted");
  };
  block();
  Outcome o = sweep("out", more);
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(ends("out").at("1-seed=2")["outcome"], "failed");
  EXPECT_THAT(o.err, Names("1-seed=2:", "1 point", "--retry 1"));
  EXPECT_EQ(count_ends("out", "done"), 2u);
  EXPECT_THAT(o.out, HasSubstr("failed"));
  const size_t before = events("out").size();
  ASSERT_THAT(resume("out"), Succeeds());
  EXPECT_EQ(events("out").size(), before);
  o = resume("out", {"--retry", "2"});  // the second and the third attempt fail
  EXPECT_THAT(o, Warns("--retry 3"));
  EXPECT_EQ(ends("out").at("1-seed=2")["outcome"], "failed");
  EXPECT_EQ(events("out").size(), before + 4);
  fs::remove(folder_ / bad);
  o = resume("out", {"--retry", "3"});
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(count_ends("out", "done"), 3u);
  EXPECT_EQ(events("out").back()["point"], "1-seed=2");
}

TEST_F(Sweep, FailFastEndsAtTheFirst) {
  fs::create_directories(folder_ / "out/points/1-seed=2");
  write("out/points/1-seed=2/checkpoints", "a file where a folder is wanted");
  EXPECT_THAT(sweep("out", {kShort, "seed=1,2,3,4", "checkpoint.every=5", "--fail-fast"}),
              Fails("error: [sweep]", "--fail-fast: 1-seed=2:"));
  EXPECT_EQ(count_ends("out", "done"), 1u);
  EXPECT_EQ(ends("out").size(), 2u);
  EXPECT_THAT(resume("out"), Succeeds());
  EXPECT_EQ(count_ends("out", "done"), 3u);
}

// Nine configurations: nine train to step 6, three to step 18, one to the end. That one ends as if it had run alone.
TEST_F(Sweep, HalvingStopsTheWorseOnes) {
  const std::string rates = "optimizer.lr=0.00001,0.00003,0.0001,0.0003,0.001,0.003,0.01,0.03,0.1";
  const Outcome o = sweep("out", {"train.steps=40", rates, "--halving", "eta=3,min=6", "--jobs", "2"});
  ASSERT_THAT(o, Succeeds());
  const auto all = ends("out");
  std::map<std::string, int64_t> last;
  std::map<int64_t, int> at;
  std::string best;
  for (const auto& [id, event] : all) {
    ++at[event["step"].get<int64_t>()];
    if (event["outcome"] == "done") best = id;
  }
  EXPECT_EQ(at, (std::map<int64_t, int>{{6, 6}, {18, 2}, {40, 1}}));
  std::vector<nlohmann::json> rungs;
  for (const auto& event : events("out"))
    if (event["event"] == "rung") rungs.push_back(event);
  ASSERT_EQ(rungs.size(), 2u);
  EXPECT_EQ(rungs[0]["step"], 6);
  EXPECT_EQ(rungs[0]["stopped"].size(), 6u);
  EXPECT_EQ(rungs[1]["step"], 18);
  EXPECT_EQ(rungs[1]["stopped"].size(), 2u);
  // The stopped ones were worse than the others.
  std::map<std::string, double> value;
  double worst_kept = 0, best_stopped = INFINITY;
  for (const auto& event : events("out"))
    if (event["event"] == "end" && event["step"] == 6) value[event["point"]] = event["value"];
  ASSERT_EQ(value.size(), 9u);
  for (const auto& [id, ppl] : value) {
    const auto& stopped = rungs[0]["stopped"];
    const bool out = std::find(stopped.begin(), stopped.end(), id) != stopped.end();
    (out ? best_stopped : worst_kept) = out ? std::min(best_stopped, ppl) : std::max(worst_kept, ppl);
  }
  EXPECT_LT(worst_kept, best_stopped);
  EXPECT_THAT(o.out, Names("stopped at step 6:", "stopped at step 18:", "done"));

  ASSERT_FALSE(best.empty());
  const std::string rate = best.substr(best.find('=') + 1);
  ASSERT_THAT(run("alone", {"train.steps=40", "optimizer.lr=" + rate}), Succeeds());
  EXPECT_EQ(read_file(folder_ / "out/points" / best / "checkpoints/step-40/model.safetensors"), model("alone", 40));
  EXPECT_EQ(metrics("out/points/" + best), metrics("alone"));
}

// A metric that these runs do not record: halving would stop the last ones, whatever their quality.
TEST_F(Sweep, HalvingWithoutAValueStopsNothing) {
  EXPECT_THAT(sweep("out", {"train.steps=20", "train.eval_every=3", "seed=1,2,3", "--metric", "rank.steps_s",
                            "--halving", "eta=3,min=4"}),
              Refuses("4 steps", "'rank steps_s'"));
  for (const auto& event : events("out")) EXPECT_NE(event["event"], "rung");
}

TEST_F(Sweep, EndsByAnotherMetricOnResume) {
  ASSERT_THAT(sweep("out", {kShort, "optimizer.lr=0.001,0.01"}), Succeeds());
  const auto before = ends("out");
  Outcome o = resume("out", {"--metric", "train.lr", "--maximize"});
  ASSERT_THAT(o, Prints("train lr"));
  EXPECT_EQ(ends("out"), before);  // no point ran again
  o = resume("out");               // the metric is kept
  EXPECT_THAT(o.out, HasSubstr("train lr"));
  EXPECT_EQ(resume("out", {"--metric", "train.lrr"}).code, 2);
  ASSERT_THAT(sweep("halved", {"train.steps=8", "train.eval_every=2", "seed=1,2,3", "--halving", "eta=3,min=4"}),
              Succeeds());
  o = resume("halved", {"--metric", "train.lr"});
  EXPECT_THAT(o, Refuses("'valid ppl'"));
}

// The name of a parameter contains dots.
TEST_F(Sweep, AMetricMayNameAParameter) {
  const std::string key = "rows/embedding.weight";
  ASSERT_THAT(sweep("out", {"train.steps=7", "seed=1,2", "--metric", "train." + key}), Prints("train " + key));
  for (const auto& [id, event] : ends("out"))
    EXPECT_EQ(event["value"], records("out/points/" + id, "train").back()[key]) << id;
  EXPECT_THAT(resume("out"), Prints("train " + key));
  EXPECT_THAT(run_lmx({"compare", path("out/points/0-seed=1"), path("out/points/1-seed=2"), "--metric", "valid."}),
              Refuses(AllOf(HasSubstr("'valid.'"), Not(HasSubstr("[sweep]")))));
}

// For each point, the values that `lmx run --dry-run` reports.
TEST_F(Sweep, ADryRunTellsParametersAndMemory) {
  const Outcome o = sweep("none", {"model.cells=16,512", "--dry-run"});
  ASSERT_THAT(o, Prints(testing::ContainsRegex("POINT +model.cells +STEPS +PARAMETERS +MEMORY\n")));
  for (const std::string cells : {"16", "512"}) {
    const std::string one = run("one", {"model.cells=" + cells, "--dry-run"}).out, key = "  total ";
    const size_t at = one.find(key) + key.size();
    EXPECT_THAT(o.out, HasSubstr(" " + one.substr(at, one.find(':', at) - at) + "\n")) << one;
  }
}

TEST_F(Sweep, ARecipeMaySayWhatItVaries) {
  write("tiny.yaml", std::string(kTinyRecipe) +
                         "sweep:\n  params: {optimizer.lr: [0.001, 0.01], train.steps: 3}\n"
                         "  seeds: 2\n  metric: train.nll_nat\n");
  const Outcome o = sweep("out");
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(ids("out").size(), 4u);
  EXPECT_THAT(o.out, HasSubstr("train nll_nat"));
  EXPECT_EQ(ends("out").begin()->second["step"], 3);
  ASSERT_THAT(run("one", {"train.steps=2"}), Succeeds());  // a single run does not use it
  ASSERT_THAT(sweep("more", {"optimizer.lr=0.1,0.2,0.3", "--seeds", "7,", "--metric", "ppl", "--dry-run"}),
              Prints("3 points, lowest valid ppl", "0-lr=0.1-seed=7"));
  write("tiny.yaml", std::string(kTinyRecipe) + "sweep: {parms: {seed: [1, 2]}}\n");
  refused({}, {path("tiny.yaml") + ":", "sweep.parms", "'params'?"});
  write("tiny.yaml", std::string(kTinyRecipe) + "sweep: {params: {seed: [1, 2]}, halving: {eta: 1, min: 3}}\n");
  refused({}, {path("tiny.yaml") + ":", "eta is 1"});
}

TEST_F(Sweep, EverythingIsCheckedBeforeTheFirstStarts) {
  const Outcome o = refused({"optimizer.lr=0.1,-1", "model.cells=8,none"},
                            {"error: 2 mistakes:\n", "optimizer.lr=-1, 2 points", "model.cells=none, 2 points"});
  EXPECT_THAT(o.err, Not(HasSubstr("1 point")));
  refused({"model.cels=8,16"}, {"model.cels", "'cells'?"});
  refused({"seed=1,2", "--seeds", "3"}, {"seed=...", "seeds"});
  refused({"--seeds", "0"}, {"[sweep] seeds"});
  refused({"--seeds", "1,1"}, {"seed 1", "twice"});
  refused({"seed=1,1"}, {"seed", "value 1 twice"});
  refused({"optimizer.lr=0.001,1e-3"}, {"optimizer.lr", "value 1e-3 twice, once as 0.001"});
  refused({"train.eval_carry=true,True"}, {"train.eval_carry", "twice"});
  refused({"model.dropout=0,0.0"}, {"model.dropout", "twice"});
  refused({"optimizer.lr=interval(0,1)"}, {"--random N"});
  refused({"optimizer.lr=tag(log,interval(0,1))", "--random", "2"}, {"above 0"});
  refused({"seed=1,2", "--halving", "eta=3"}, {"halving", "min"});
  refused({"seed=1,2", "--halving", "eta=1,min=3"}, {"eta is 1"});
  refused({"seed=1,2", "--halving", "etta=2"}, {"'eta'?"});
  refused({"seed=1,2", "--metric", "valid."}, {"split.key", "'valid.'"});
  refused({"seed=1,2", "--metric", "a.b.c"}, {"metric a.b.c", "split 'a'"});
  refused({"seed=1,2", "--metric", "valid.pppl"}, {"'pppl'", "'ppl'?"});
  refused({"seed=1,2", "--metric", "train.nll_nt"}, {"'nll_nt'", "'nll_nat'?"});
  refused({"seed=1,2", "--metric", "vald.ppl"}, {"split 'vald'", "'valid'?"});
  refused({"seed=1,2", "--metric", "foo", "--dry-run"}, {"split valid", "'foo'", "ppl"});
  refused({"seed=1,2", "--metric", "test BLEU", "--halving", "eta=2,min=3"}, {"halving", "BLEU"});
  refused({"seed=1,2", "--launcher", "slrum"}, {"slurm"});
  std::string recipe = kTinyRecipe;
  const size_t at = recipe.find("data: {"), end = recipe.find('\n', at);
  write("tiny.yaml", recipe.replace(at, end - at, "data: {name: text, corpus: fbis, vocab_size: 60}"));
  refused({"seed=1,2"}, {"not ready", "'fbis'"});
}

TEST_F(Sweep, Folders) {
  EXPECT_THAT(run_process(words({}), environment()), Refuses("lmx sweep RECIPE", "--resume DIR"));
  EXPECT_THAT(resume("nowhere"), Refuses("no sweep"));
  ASSERT_THAT(sweep("out", {"train.steps=2", "seed=1,2"}), Succeeds());
  EXPECT_THAT(sweep("out", {"train.steps=2", "seed=1,2"}), Refuses("sweep already", "--resume"));
  // The same command with --resume auto continues; another command is rejected.
  EXPECT_THAT(sweep("out", {"train.steps=2", "seed=1,2", "--resume", "auto"}), Warns("2 of 2 points"));
  EXPECT_THAT(sweep("out", {"train.steps=2", "seed=1,3", "--resume", "auto"}), Refuses("overrides", "seed=1,3"));
  fs::create_directories(folder_ / "other");
  write("other/file", "");
  EXPECT_THAT(sweep("other", {"seed=1,2"}), Refuses("not empty", "file"));
  const std::string line =
      "cd '" + path("") + "' && '" + build_path("/bin/lmx' sweep tiny.yaml train.steps=2 seed=1,2");
  ASSERT_THAT(run_process({"/bin/sh", "-c", line}, environment()), Prints("sweep runs/sweeps/tiny/"));
  EXPECT_THAT(run_process({"/bin/sh", "-c", line + " --resume auto"}, environment()), Warns("2 of 2 points"));
  size_t sweeps = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "runs/sweeps/tiny")) sweeps += entry.is_directory();
  EXPECT_EQ(sweeps, 1u);
  write("out/sweep.json", "{\"format\": 1");
  EXPECT_THAT(resume("out").err, Names("sweep.json", "damaged"));
}

// It is drawn again over itself, here until both points are seen to run.
TEST_F(Sweep, ATableLivesOnATerminalAlone) {
  const auto drawn_twice =
      AllOf(HasSubstr("0 of 2 points have ended; 2 running"), HasSubstr("/50000"), HasSubstr("\033[4F\033[J"));
  const TerminalOutcome o = run_on_terminal(
      {"sweep", path("tiny.yaml"), "--out", path("out"), "train.steps=50000", "seed=1,2", "--jobs", "2"}, environment(),
      80, [&](const std::string& text) { return testing::Value(text, drawn_twice); });
  EXPECT_EQ(o.code, 143);
  EXPECT_THAT(o.text, AllOf(drawn_twice, Not(HasSubstr("point 1/2"))));
}

}  // namespace
}  // namespace lmx_test
