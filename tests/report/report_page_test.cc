// The page of lmx report: one complete, small file.
#include "process/report_fixture.h"

namespace lmx_test {
namespace {

using ReportPage = ReportPageTest;

TEST_F(ReportPage, IsOneFileBesideTheRun) {
  ASSERT_THAT(run("a", {"train.steps=30", "--ranks", "3", "batch.global=9", "batch.micro=0"}), Succeeds());
  ASSERT_THAT(report({path("a")}), Prints("report   " + path("a/report.html")));
  ASSERT_THAT(report({path("a"), "--json", "--html", path("b.html")}), Succeeds());
  EXPECT_EQ(read_file(path("b.html")), read_file(path("a/report.html")));
  const std::string page = read_file(folder_ / "a/report.html");
  EXPECT_THAT(page, AllOf(Not(HasSubstr("src=")), Not(HasSubstr("href=")), Not(HasSubstr("@import")),
                          Not(ContainsRegex("url\\([^#]")), Not(HasSubstr("fetch(")), Not(HasSubstr("{{"))));
  const Json run = data_of("a/report.html")["runs"][0];
  EXPECT_EQ(run["ranks"], 3);
  EXPECT_EQ(run["memory"]["ranks"].size(), 3u);
  double sent = 0;
  for (const Json& line : run["traffic"]) sent += line["total"].get<double>();
  EXPECT_GT(sent, 0);
}

TEST_F(ReportPage, CurvesAreTheRecords) {
  const std::vector<Json> records = falling(50, 4);
  make_run("a", records);
  ASSERT_THAT(report({path("a"), "--html", path("page.html")}), Succeeds());
  size_t compared = 0;
  const Json data = data_of("page.html");
  for (const Json& curve : data["runs"][0]["curves"]) {
    size_t i = 0;
    for (const Json& r : records) {
      if (r["split"] != curve["split"] || !r.contains(curve["key"])) continue;
      ASSERT_EQ(curve["x"][i], r["step"]);
      ASSERT_NEAR(curve["y"][i].get<double>(), r[curve["key"].get<std::string>()].get<double>(), 1e-5 * std::exp(5));
      ++i, ++compared;
    }
    EXPECT_EQ(i, curve["x"].size());
  }
  EXPECT_EQ(compared, 50u * 4 + 5 * 2);  // nll, ppl, lr, step_s; nll and ppl of five validations
}

TEST_F(ReportPage, AnyLengthStaysBelowTwoMegabytesAndKeepsPeaks) {
  std::vector<Json> records;
  for (int step = 1; step <= 20'000; ++step) {
    Json r{{"step", step}, {"split", "train"}};
    for (int k = 0; k < 12; ++k) r["metric" + std::to_string(k)] = std::sin(step * 0.37 * (k + 1));
    r["metric0"] = step == 12'345 ? 99.0 : 1.0;
    records.push_back(std::move(r));
  }
  make_run("a", records);
  make_run("b", records);
  ASSERT_THAT(report({path("a"), path("b"), "--html", path("page.html")}), Succeeds());
  EXPECT_LT(std::filesystem::file_size(folder_ / "page.html"), 2'000'000u);
  const Json data = data_of("page.html");
  for (const Json& curve : data["runs"][1]["curves"]) {
    EXPECT_GT(curve["x"].size(), 1000u);
    EXPECT_EQ(curve["x"].front(), 1);
    EXPECT_EQ(curve["x"].back(), 20'000);
    if (curve["key"] != "metric0") continue;
    EXPECT_THAT(curve["y"].dump(), HasSubstr("99"));
  }
}

// If there are too many runs, only the best ones have curves, and the page says so.
TEST_F(ReportPage, AnyNumberOfRunsStaysBelowTwoMegabytes) {
  Words arguments;
  for (int i = 0; i < 300; ++i) {
    std::vector<Json> records;
    for (int step = 1; step <= 10; ++step) {
      Json r{{"step", step}, {"split", "train"}};
      for (int k = 0; k < 80; ++k) r["some_metric_" + std::to_string(k)] = std::sin(step * 0.37 * (k + 1));
      records.push_back(std::move(r));
    }
    records.push_back({{"step", 10}, {"split", "valid"}, {"ppl", 500 - i}});
    const std::string dir = "run" + std::to_string(i);
    make_run(dir, records, "seed: " + std::to_string(i) + "\n");
    arguments.push_back(path(dir));
  }
  arguments.insert(arguments.end(), {"--html", path("page.html")});
  ASSERT_THAT(report(arguments), Succeeds());
  EXPECT_LT(std::filesystem::file_size(folder_ / "page.html"), 2'000'000u);
  const Json data = data_of("page.html");
  ASSERT_EQ(data["runs"].size(), 300u);
  size_t whole = 0;
  for (const Json& run : data["runs"]) whole += run.contains("curves");
  EXPECT_GT(whole, 50u);
  EXPECT_LT(whole, 300u);
  EXPECT_TRUE(data["runs"][299].contains("curves"));  // the run with the lowest perplexity
  EXPECT_FALSE(data["runs"][0].contains("curves"));
  EXPECT_EQ(data["runs"][0]["results"][0][0], "valid ppl");
  EXPECT_THAT(data["left_out"].get<std::string>(), Names(std::to_string(whole) + " best of 300"));
  if (browser().empty()) return;
  EXPECT_THAT(opened("page.html", ""), Names("best of 300"));
}

std::string long_values(int keys, int run) {
  std::string yaml;
  for (int k = 0; k < keys; ++k)
    yaml += "note" + std::to_string(k) + ": " + std::string(1'900, 'x') + std::to_string(run) + "\n";
  return yaml;
}

// If there is no space for all configurations, the best runs are listed, and the page says so.
TEST_F(ReportPage, AnyLengthOfValuesStaysBelowTwoMegabytes) {
  Words arguments;
  for (int i = 0; i < 120; ++i) {
    const std::string dir = "run" + std::to_string(i);
    make_run(dir, {{{"step", 10}, {"split", "valid"}, {"ppl", 500 - i}}},
             long_values(20, i) + "long: " + std::string(30'000, 'x') + "\n");
    arguments.push_back(path(dir));
  }
  arguments.insert(arguments.end(), {"--html", path("page.html")});
  ASSERT_THAT(report(arguments), Succeeds());
  EXPECT_LT(std::filesystem::file_size(folder_ / "page.html"), 2'000'000u);
  const Json data = data_of("page.html");
  const size_t listed = data["runs"].size();
  EXPECT_GT(listed, 30u);
  EXPECT_LT(listed, 120u);
  EXPECT_THAT(data["runs"].back()["name"].get<std::string>(), HasSubstr("run119"));  // the lowest perplexity
  EXPECT_EQ(data["config"][0]["values"].size(), listed);
  EXPECT_THAT(data["left_out"].get<std::string>(), Names("Of 120 runs the " + std::to_string(listed)));
}

TEST_F(ReportPage, TextOfARunCannotLeaveItsPlace) {
  make_run("a", {{{"step", 1}, {"split", "valid"}, {"ppl", "NaN"}, {"nll_nat", "Infinity"}}},
           "note: \"</script><script>alert(1)</script>\"\n");
  ASSERT_THAT(report({path("a")}), Succeeds());
  const Json data = data_of("a/report.html");
  EXPECT_EQ(data["config"][0]["values"][0], "</script><script>alert(1)</script>");
  EXPECT_EQ(data["runs"][0]["curves"][1]["y"][0], nullptr);
  EXPECT_THAT(read_file(folder_ / "a/report.html"), Not(HasSubstr("<script>alert")));
}

TEST_F(ReportPage, ConfigurationsSideBySide) {
  make_run("a", falling(3, 4), "seed: 1\noptimizer:\n  lr: 0.1\n");
  make_run("b", falling(3, 3), "seed: 1\noptimizer:\n  lr: 0.2\n  beta: 0.9\n");
  ASSERT_THAT(report({path("a"), path("b"), "--html", path("page.html")}), Succeeds());
  EXPECT_EQ(data_of("page.html")["config"], Json::parse(R"([{"key": "seed", "values": ["1"]},
    {"key": "optimizer.lr", "values": ["0.1", "0.2"]}, {"key": "optimizer.beta", "values": ["", "0.9"]}])"));
}

// Three seeds of one configuration, one run of another, and one that diverged: the page's number and its configuration.
TEST_F(ReportPage, TheNumberIsThatOfTheBestConfiguration) {
  const auto run = [&](const std::string& dir, double ppl, const std::string& config, const std::string& status = "") {
    make_run(dir,
             {{{"step", 5}, {"split", "valid"}, {"ppl", ppl}}, {{"step", 9}, {"split", "valid"}, {"ppl", ppl + 1}}},
             config, status);
  };
  run("a", 20, "seed: 1\nlr: 0.1\nrun: {dir: a}\n");
  run("b", 22, "seed: 2\nlr: 0.1\nrun: {dir: b}\n");
  run("c", 24, "seed: 3\nlr: 0.1\nrun: {dir: c}\n");
  run("d", 21, "seed: 1\nlr: 0.2\n");
  run("e", 3, "seed: 1\nlr: 9\n", R"({"state":"failed","cause":"diverged","step":9,"reason":"the loss is NaN"})");
  const Outcome o = report({path("a"), path("b"), path("c"), path("d"), path("e"), "--html", path("page.html")});
  ASSERT_THAT(o, Succeeds());
  const Json data = data_of("page.html"), c = data["comparison"];
  EXPECT_EQ(c["metric"], "best valid ppl");
  EXPECT_EQ(c["values"], Json::parse("[20, 22, 24, 21, null]"));
  EXPECT_EQ(c["best_run"], 3);
  EXPECT_EQ(c["step"], 5);
  ASSERT_EQ(c["groups"].size(), 3u);
  EXPECT_EQ(c["groups"][0]["runs"], Json::parse("[0, 1, 2]"));
  EXPECT_EQ(c["groups"][0]["mean"], 22);
  // t(0.975, 2) = 4.302653 and s = 2: 4.302653 * 2 / sqrt(3).
  EXPECT_NEAR(c["groups"][0]["half_interval"].get<double>(), 4.96828, 1e-4);
  EXPECT_EQ(c["groups"][1]["half_interval"], nullptr);
  EXPECT_EQ(data["runs"][4]["state"], "diverged");
  EXPECT_EQ(data["runs"][4]["reason"], "the loss is NaN");
  EXPECT_THAT(o.out, AllOf(ContainsRegex("\\* +" + path("d") + " +unknown +9 +21 +5 +22"),
                           ContainsRegex(path("e") + " +diverged"), HasSubstr("best valid ppl 21  (*: " + path("d"))));
}

// Two runs with one seed show nothing of the noise between seeds.
TEST_F(ReportPage, ARepeatedSeedCountsOnce) {
  const auto run = [&](const std::string& dir, double ppl, const std::string& config) {
    make_run(dir, {{{"step", 5}, {"split", "valid"}, {"ppl", ppl}}}, config);
  };
  run("a", 20, "seed: 1\nlr: 0.1\nrun: {dir: a}\n");
  run("b", 20, "seed: 1\nlr: 0.1\nrun: {dir: b}\n");
  EXPECT_THAT(report({path("a"), path("b")}).out, HasSubstr("best valid ppl 20  (*: "));
  EXPECT_THAT(report({path("a"), path("a")}).out, HasSubstr("best valid ppl 20  (*: "));
  run("c", 24, "seed: 2\nlr: 0.1\nrun: {dir: c}\n");
  EXPECT_THAT(report({path("a"), path("b"), path("c")}).out, HasSubstr("best valid ppl 22 \u00b1 25 (mean of 2 seeds"));
}

// Bytes and seconds of communication are those of one step, for any length of the record's window.
TEST_F(ReportPage, TrafficIsThatOfAStep) {
  const auto train = [](int step, double sent) {
    return Json{{"step", step}, {"split", "train"}, {"comm_sent_bytes", sent}, {"comm_s", sent / 100}, {"lr", 1}};
  };
  const auto rank = [](int step, int steps) {
    return Json{{"step", step}, {"split", "rank"}, {"rank", 0}, {"steps", steps}};
  };
  // Windows of 10 steps, of 10 steps of which 5 were counted after a resume, and of 2 steps.
  make_run("a",
           {train(10, 1000), rank(10, 10), train(20, 500), rank(20, 5), train(30, 1000), rank(30, 10), train(32, 200),
            rank(32, 2)},
           "comm: {name: mpi}\n");
  ASSERT_THAT(report({path("a")}), Succeeds());
  const Json run = data_of("a/report.html")["runs"][0];
  size_t found = 0;
  for (const Json& curve : run["curves"]) {
    if (curve["key"] != "comm_sent_bytes") continue;
    EXPECT_EQ(curve["y"], Json::parse("[100, 100, 100, 100]"));
    ++found;
  }
  EXPECT_EQ(found, 1u);
  EXPECT_EQ(run["short_window"], Json::parse(R"({"step": 32, "steps": 2, "usual": 10})"));
}

// Values of take_values() appear in the tables and as curves; a histogram of staleness does not.
TEST_F(ReportPage, ValuesOfStrategies) {
  make_run(
      "a",
      {{{"step", 10}, {"split", "train"}, {"tables/kept_share", 0.25}, {"rows/x", 3}, {"tables/staleness/0", 7}},
       {{"step", 20}, {"split", "train"}, {"tables/kept_share", 0.125}, {"rows/x", 3}, {"tables/staleness/0", 7}}});
  ASSERT_THAT(report({path("a")}), Prints(ContainsRegex("tables/kept_share +0.125 +20")));
  const Json run = data_of("a/report.html")["runs"][0];
  EXPECT_EQ(run["strategy"], Json::parse(R"({"tables/kept_share": 0.125})"));
  ASSERT_EQ(run["curves"].size(), 1u);
  EXPECT_EQ(run["curves"][0]["key"], "tables/kept_share");
  EXPECT_EQ(run["curves"][0]["y"], Json::parse("[0.25, 0.125]"));
  EXPECT_EQ(Json::parse(report({path("a"), "--json"}).out)["strategy"], run["strategy"]);
}

// At its end a run prints the perplexity of the text's source on the validation split; the report prints the same.
TEST_F(ReportPage, OneTruePerplexity) {
  const Outcome o = run("a", {"train.steps=10"});
  ASSERT_THAT(o, Succeeds());
  ASSERT_THAT(report({path("a")}), Succeeds());
  const Json source = data_of("a/report.html")["runs"][0]["start"]["data"];
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", source["valid_true_perplexity"].get<double>());
  EXPECT_THAT(o.out, HasSubstr(std::string("(best possible: ") + text));
  EXPECT_THAT(source["source"].get<std::string>(), Names("validation split"));
}

// The text that a user puts into samples.txt; a long one is cut.
TEST_F(ReportPage, ShowsSamples) {
  make_run("a", falling(10, 4));
  make_run("b", falling(10, 3));
  const std::string text = "it was the best of times,\n<b>it</b> was & is\n";
  write("a/samples.txt", text);
  ASSERT_THAT(report({path("a"), path("b"), "--html", path("page.html")}), Succeeds());
  Json runs = data_of("page.html")["runs"];
  EXPECT_EQ(runs[0]["samples"], text);
  EXPECT_EQ(runs[1]["samples"], "");
  write("a/samples.txt", std::string(1'000'000, 'x'));
  ASSERT_THAT(report({path("a"), path("b"), "--html", path("page.html")}), Succeeds());
  runs = data_of("page.html")["runs"];
  EXPECT_THAT(runs[0]["samples"].get<std::string>().size(), AllOf(testing::Gt(10'000u), testing::Lt(30'000u)));
}

// The scale of the heat map, computed by the page's own functions: the geometric mean is in the middle if the worst
// value is over three times the best, and the arithmetic mean otherwise.
TEST_F(ReportPage, WideSweepsHaveALogarithmicScale) {
  if (on_path("node").empty()) GTEST_SKIP() << "there is no Node.js, which runs the page's functions";
  make_run("a", falling(10, 4));
  ASSERT_THAT(report({path("a")}), Succeeds());
  const std::string page = read_file(folder_ / "a/report.html");
  std::string script;
  for (const std::string name : {"scaled", "grade"}) {
    const size_t at = page.find("const " + name + " = ");
    ASSERT_NE(at, std::string::npos) << name;
    script += page.substr(at, page.find("\n};\n", at) + 4 - at);
  }
  script += R"js(
const told = (values, lower) => { const s = grade(values, lower); return [s.log, ...values.map((v) => s.of(v))]; };
console.log(JSON.stringify([told([2, 20, 200], true), told([2, 20, 200], false), told([2, 3, 4], true),
                            told([0, 5, 10], true), told([-9, 0, 9], true), told([7, 7], true)]));)js";
  write("scale.js", script);
  const Outcome o = run_process({"node", path("scale.js")}, environment());
  ASSERT_THAT(o, Succeeds());
  const Json scales = Json::parse(o.out);
  const std::vector<std::pair<bool, std::vector<double>>> expected{{true, {0, 0.5, 1}},  {true, {1, 0.5, 0}},
                                                                   {false, {0, 0.5, 1}}, {false, {0, 0.5, 1}},
                                                                   {false, {0, 0.5, 1}}, {false, {0, 0}}};
  ASSERT_EQ(scales.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(scales[i][0], expected[i].first) << i;
    for (size_t v = 0; v < expected[i].second.size(); ++v)
      EXPECT_NEAR(scales[i][v + 1].get<double>(), expected[i].second[v], 1e-9) << i;
  }
}

TEST_F(ReportPage, AFolderOfRuns) {
  make_run("runs/x/one", falling(10, 4));
  make_run("runs/x/one/checkpoints/copy", falling(10, 4));  // inside a run's folder: not searched
  make_run("runs/y/deep/two", falling(10, 3), "seed: 2\n");
  make_run("runs/.hidden", falling(10, 1));
  make_run("runs/broken", falling(10, 1));
  write("runs/broken/provenance.json", "{");
  const Outcome o = report({path("runs")});
  ASSERT_THAT(o, Warns(path("runs/broken"), "provenance.json"));
  const Json data = data_of("runs/report.html");
  ASSERT_EQ(data["runs"].size(), 2u);
  EXPECT_EQ(data["runs"][0]["directory"], path("runs/x/one"));
  EXPECT_EQ(data["runs"][1]["directory"], path("runs/y/deep/two"));
  EXPECT_THAT(o.out, AllOf(ContainsRegex("RUN +STATE +STEP"), HasSubstr(path("runs/x/one")), Not(HasSubstr("METRIC"))));
  std::filesystem::create_directory(path("empty"));
  EXPECT_THAT(report({path("empty")}), Refuses(path("empty")));
}

TEST_F(ReportPage, Mistakes) {
  make_run("a", falling(3, 4));
  EXPECT_THAT(report({path("a"), path("a"), "--json"}).err, Names("--json", "one run"));
  EXPECT_THAT(report({path("a"), path("b")}).err, Names(path("b")));
  EXPECT_THAT(report({path("a"), "--html", path("none/page.html")}), Refuses("none/page.html"));
}

// No value varies, and one point's run is damaged: the rest of the page is complete.
TEST_F(ReportPage, ASweepOfOnePoint) {
  const auto sweep = [&](const std::string& out, const Words& more) {
    return lmx(joined({"sweep", path("tiny.yaml"), "train.steps=12", "--out", path(out)}, more));
  };
  ASSERT_THAT(sweep("one", {}), Succeeds());
  ASSERT_THAT(report({path("one")}), Succeeds());
  if (!browser().empty()) {
    const std::string page = opened("one/report.html", "");
    EXPECT_THAT(page, Names("id=\"sweep-section\" hidden", "class=\"curve s0"));
  }
  ASSERT_THAT(sweep("two", {"train.max_loss=0,0.01", "--metric", "train.nll_nat"}), Succeeds());
  write("two/points/0-max_loss=0/provenance.json", "{");
  EXPECT_THAT(report({path("two")}), Warns("0-max_loss=0"));
  const Json points = data_of("two/report.html")["sweep"]["points"];
  EXPECT_TRUE(points[0]["value"].is_number());
  EXPECT_EQ(points[1]["outcome"], "diverged");
  EXPECT_TRUE(points[1]["value"].is_null()) << "a diverged point must have no value, as in the table";
}

}  // namespace
}  // namespace lmx_test
