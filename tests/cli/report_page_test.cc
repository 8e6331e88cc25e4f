// The page of lmx report: one file, whole and small; in a browser it shows what the records say.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "comm/mpi_here.h"
#include "run_fixture.h"

namespace lmx_test {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// The first program of these names on PATH; "" without one.
std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (const std::string file = on_path(name); !file.empty()) return file;
  return "";
}

class ReportPage : public RunTest {
 protected:
  Outcome report(const std::vector<std::string>& more) const {
    std::vector<std::string> words{LMX_BINARY_DIR "/bin/lmx", "report"};
    words.insert(words.end(), more.begin(), more.end());
    return run_process(words, environment());
  }

  // A run's folder with these records, and the least that belongs to it.
  void make_run(const std::string& dir, const std::vector<Json>& records, const std::string& config = "seed: 1\n") {
    std::filesystem::create_directories(folder_ / dir);
    write(dir + "/provenance.json", R"({"starts":[{"lmx":{"version":"0.0-test"}}]})");
    write(dir + "/config.yaml", config);
    std::string lines;
    for (const Json& r : records) lines += r.dump() + "\n";
    write(dir + "/metrics.jsonl", lines);
  }

  Json data_of(const std::string& file) const {
    const std::string text = read_file(folder_ / file), begin = R"(<script id="data" type="application/json">)";
    const size_t at = text.find(begin);
    EXPECT_NE(at, std::string::npos);
    return Json::parse(text.substr(at + begin.size(), text.find("</script>", at) - at - begin.size()));
  }

  // What a browser makes of the page; `link` stands behind the #.
  std::string opened(const std::string& file, const std::string& link, const std::string& size = "1400,1000") const {
    const Outcome o = run_process({browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                   "--user-data-dir=" + path("profile"), "--window-size=" + size, "--dump-dom",
                                   "file://" + path(file) + "#" + link});
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out.substr(0, o.out.find("<script id=\"data\""));
  }
};

std::vector<Json> falling(int steps, double start) {
  std::vector<Json> records;
  for (int step = 1; step <= steps; ++step) {
    const double nll = start / std::sqrt(step);
    records.push_back({{"step", step},
                       {"split", "train"},
                       {"nll_nat", nll},
                       {"ppl", std::exp(nll)},
                       {"lr", 0.5},
                       {"tokens", 100 * step},
                       {"epoch", step * 0.1},
                       {"step_s", 0.5}});
    if (step % 10 == 0)
      records.push_back({{"step", step}, {"split", "valid"}, {"nll_nat", nll + 1}, {"ppl", std::exp(nll + 1)}});
  }
  return records;
}

TEST_F(ReportPage, IsOneFileBesideTheRun) {
  ASSERT_EQ(run("a", {"train.steps=30", "--ranks", "3", "batch.global=9", "batch.micro=0"}).code, 0);
  const Outcome o = report({path("a")});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("report   " + path("a/report.html")));
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
  ASSERT_EQ(report({path("a"), "--html", path("page.html")}).code, 0);
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
  ASSERT_EQ(report({path("a"), path("b"), "--html", path("page.html")}).code, 0);
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

// Of more runs than there is room for the best have curves, and the page says so.
TEST_F(ReportPage, AnyNumberOfRunsStaysBelowTwoMegabytes) {
  std::vector<std::string> arguments;
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
  const Outcome o = report(arguments);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_LT(std::filesystem::file_size(folder_ / "page.html"), 2'000'000u);
  const Json data = data_of("page.html");
  ASSERT_EQ(data["runs"].size(), 300u);
  size_t whole = 0;
  for (const Json& run : data["runs"]) whole += run.contains("curves");
  EXPECT_GT(whole, 50u);
  EXPECT_LT(whole, 300u);
  EXPECT_TRUE(data["runs"][299].contains("curves"));  // of the lowest perplexity
  EXPECT_FALSE(data["runs"][0].contains("curves"));
  EXPECT_EQ(data["runs"][0]["results"][0][0], "valid ppl");
  EXPECT_THAT(data["left_out"].get<std::string>(),
              HasSubstr("the " + std::to_string(whole) + " best of 300 runs by validation perplexity"));
  if (browser().empty()) return;
  EXPECT_THAT(opened("page.html", ""), HasSubstr("best of 300 runs by validation perplexity"));
}

std::string long_values(int keys, int run) {
  std::string yaml;
  for (int k = 0; k < keys; ++k)
    yaml += "note" + std::to_string(k) + ": " + std::string(1'900, 'x') + std::to_string(run) + "\n";
  return yaml;
}

// Where not even configurations fit, the best runs are listed, and the page says so.
TEST_F(ReportPage, AnyLengthOfValuesStaysBelowTwoMegabytes) {
  std::vector<std::string> arguments;
  for (int i = 0; i < 120; ++i) {
    const std::string dir = "run" + std::to_string(i);
    make_run(dir, {{{"step", 10}, {"split", "valid"}, {"ppl", 500 - i}}},
             long_values(20, i) + "long: " + std::string(30'000, 'x') + "\n");
    arguments.push_back(path(dir));
  }
  arguments.insert(arguments.end(), {"--html", path("page.html")});
  ASSERT_EQ(report(arguments).code, 0);
  EXPECT_LT(std::filesystem::file_size(folder_ / "page.html"), 2'000'000u);
  const Json data = data_of("page.html");
  const size_t listed = data["runs"].size();
  EXPECT_GT(listed, 30u);
  EXPECT_LT(listed, 120u);
  EXPECT_THAT(data["runs"].back()["name"].get<std::string>(), HasSubstr("run119"));  // of the lowest perplexity
  EXPECT_EQ(data["config"][0]["values"].size(), listed);
  EXPECT_THAT(data["left_out"].get<std::string>(), HasSubstr("Of 120 runs the " + std::to_string(listed) + " best"));
}

TEST_F(ReportPage, TextOfARunCannotLeaveItsPlace) {
  make_run("a", {{{"step", 1}, {"split", "valid"}, {"ppl", "NaN"}, {"nll_nat", "Infinity"}}},
           "note: \"</script><script>alert(1)</script>\"\n");
  ASSERT_EQ(report({path("a")}).code, 0);
  const Json data = data_of("a/report.html");
  EXPECT_EQ(data["config"][0]["values"][0], "</script><script>alert(1)</script>");
  EXPECT_EQ(data["runs"][0]["curves"][1]["y"][0], nullptr);
  EXPECT_THAT(read_file(folder_ / "a/report.html"), Not(HasSubstr("<script>alert")));
}

TEST_F(ReportPage, ConfigurationsSideBySide) {
  make_run("a", falling(3, 4), "seed: 1\noptimizer:\n  lr: 0.1\n");
  make_run("b", falling(3, 3), "seed: 1\noptimizer:\n  lr: 0.2\n  beta: 0.9\n");
  ASSERT_EQ(report({path("a"), path("b"), "--html", path("page.html")}).code, 0);
  EXPECT_EQ(data_of("page.html")["config"], Json::parse(R"([{"key": "seed", "values": ["1"]},
    {"key": "optimizer.lr", "values": ["0.1", "0.2"]}, {"key": "optimizer.beta", "values": ["", "0.9"]}])"));
}

TEST_F(ReportPage, Mistakes) {
  make_run("a", falling(3, 4));
  EXPECT_THAT(report({path("a"), path("a"), "--json"}).err, HasSubstr("--json tells of one run, and here are 2"));
  EXPECT_THAT(report({path("a"), path("b")}).err, HasSubstr("there is no run directory " + path("b")));
  const Outcome o = report({path("a"), "--html", path("none/page.html")});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("none/page.html"));
}

TEST_F(ReportPage, ABrowserShowsTheValues) {
  if (browser().empty()) GTEST_SKIP() << "no chromium on PATH";
  make_run("first", falling(50, 4));
  make_run("second", falling(50, 3), "seed: 2\n");
  ASSERT_EQ(report({path("first"), path("second"), "--html", path("page.html")}).code, 0);
  for (const std::string size : {"1400,1000", "400,900"}) {
    const std::string page = opened("page.html", "at=20&theme=dark", size);
    EXPECT_THAT(page, AllOf(HasSubstr("data-theme=\"dark\""), HasSubstr("data-curve=\"valid ppl\""),
                            HasSubstr("data-curve=\"train nll_nat\"")));
    const auto shown = [](double value) {
      char text[32];
      std::snprintf(text, sizeof text, "%.5g", value);
      return std::string(text);
    };
    // What the cross at step 20 reads on the curves of both runs, and the tables' last values.
    EXPECT_THAT(page, HasSubstr("train nll_nat<span>" + shown(4 / std::sqrt(20)) + "  " + shown(3 / std::sqrt(20)) +
                                "</span>"));
    EXPECT_THAT(page, HasSubstr("data-metric=\"lr\">0.5</td>"));
    EXPECT_THAT(page, HasSubstr("<tr class=\"differs\"><th>seed</th><td>1</td><td>2</td></tr>"));
    EXPECT_THAT(page, Not(HasSubstr("NaN")));
  }
  EXPECT_THAT(opened("page.html", "theme=light&axis=tokens&at=2000"),
              AllOf(HasSubstr("data-theme=\"light\""), HasSubstr("train nll_nat<span>")));
}

// What a reader does with the pointer, as events: over a curve, across a part of it, twice on it.
TEST_F(ReportPage, APointerReadsAndZooms) {
  if (browser().empty()) GTEST_SKIP() << "no chromium on PATH";
  make_run("a", falling(101, 4));
  ASSERT_EQ(report({path("a"), "--html", path("page.html")}).code, 0);
  write("page.html", read_file(folder_ / "page.html") + R"html(<script>
const card = document.querySelector('[data-curve="train nll_nat"]'), svg = card.querySelector("svg"), told = document.body.dataset;
const at = (kind, step) => {  // steps 1 to 101 lie between the chart's margins
  const box = svg.getBoundingClientRect(), left = box.left + 58, right = box.right - 12;
  const clientX = left + (step - 1) / 100 * (right - left);
  svg.dispatchEvent(new PointerEvent(kind, {clientX, clientY: box.top + 50, bubbles: true}));
};
const label = () => document.getElementById("tip").hidden ? "none" : document.getElementById("tip").textContent;
at("pointermove", 25.2);
told.reading = card.querySelector("h3 span").textContent;
told.label = label();
at("pointerleave", 25);
told.left = card.querySelector("h3 span").textContent + label();
at("pointerdown", 21);
at("pointermove", 61);
told.brush = svg.querySelectorAll("rect.brush").length;
at("pointerup", 61);
told.zoom = location.hash;
told.enabled = !document.getElementById("whole").disabled;
svg.dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
told.whole = `all${location.hash}`;
</script>)html");
  const std::string page = opened("page.html", "");
  const std::string body = page.substr(page.find("<body"), page.find('>', page.find("<body")) - page.find("<body"));
  EXPECT_THAT(body, AllOf(HasSubstr(" data-reading=\"0.8\""), ContainsRegex(" data-label=\"step25[^\"]*/a0.8\""),
                          HasSubstr(" data-left=\"none\""), HasSubstr(" data-brush=\"1\"")));
  EXPECT_THAT(
      body,
      ContainsRegex(" data-zoom=\"#from=2[01][.0-9]*&amp;to=6[01][.0-9]*\" data-enabled=\"true\" data-whole=\"all\""));
}

TEST_F(ReportPage, ABrowserShowsASweep) {
  if (browser().empty()) GTEST_SKIP() << "no chromium on PATH";
  const Outcome o = run_process({LMX_BINARY_DIR "/bin/lmx", "sweep", path("tiny.yaml"), "train.steps=12",
                                 "optimizer.lr=0.001,0.02", "clip=1,2", "--out", path("sweep")},
                                environment());
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(report({path("sweep")}).code, 0);
  double best = INFINITY;
  const Json data = data_of("sweep/report.html");
  for (const Json& point : data["sweep"]["points"]) best = std::min(best, point["value"].get<double>());
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", best);
  const std::string page = opened("sweep/report.html", "");
  EXPECT_THAT(page, AllOf(HasSubstr("<th>1</th><th>2</th></tr><tr><th>0.001</th>"),
                          ContainsRegex(std::string("class=\"best\"[^>]*>") + text + "</td>"),
                          HasSubstr("aria-label=\"every point of the sweep\"")));
}

// Nothing varies, and one point's run is damaged: the rest of the page is there.
TEST_F(ReportPage, ASweepOfOnePoint) {
  const auto sweep = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words{LMX_BINARY_DIR "/bin/lmx", "sweep", path("tiny.yaml"),
                                   "train.steps=12",          "--out", path(out)};
    words.insert(words.end(), more.begin(), more.end());
    return run_process(words, environment());
  };
  ASSERT_EQ(sweep("one", {}).code, 0);
  ASSERT_EQ(report({path("one")}).code, 0);
  if (!browser().empty()) {
    const std::string page = opened("one/report.html", "");
    EXPECT_THAT(page, AllOf(HasSubstr("id=\"sweep-section\" hidden"), HasSubstr("class=\"curve\"")));
  }
  ASSERT_EQ(sweep("two", {"train.max_loss=0,0.01", "--metric", "train.nll_nat"}).code, 0);
  write("two/points/0-max_loss=0/provenance.json", "{");
  const Outcome o = report({path("two")});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, HasSubstr("point 0-max_loss=0 is left out of the curves: "));
  const Json points = data_of("two/report.html")["sweep"]["points"];
  EXPECT_TRUE(points[0]["value"].is_number());
  EXPECT_EQ(points[1]["outcome"], "diverged");
  EXPECT_TRUE(points[1]["value"].is_null()) << "no value, as in the table";
}

}  // namespace
}  // namespace lmx_test
