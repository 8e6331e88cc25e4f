// The page of lmx report in a browser: it must show the values of the records. Skipped without Chromium.
#include <array>
#include <set>

#include "process/report_fixture.h"

namespace lmx_test {
namespace {

using testing::Each;

class ReportBrowser : public ReportPageTest {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "no chromium on PATH";
  }
};

// The page's format of numbers: five significant digits.
std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

TEST_F(ReportBrowser, ShowsTheValues) {
  make_run("first", falling(50, 4), "seed: 1\nlr: 0.1\n");
  make_run("second", falling(50, 3), "seed: 1\nlr: 0.2\n");
  ASSERT_THAT(report({path("first"), path("second"), "--html", path("page.html")}), Succeeds());
  for (const std::string size : {"1400,1000", "500,900"}) {
    const std::string page = opened("page.html", "at=20&theme=dark&unit=nll_nat", size);
    EXPECT_THAT(page, Names("data-theme=\"dark\"", "data-curve=\"valid loss\"", "data-curve=\"train loss\""));
    // The cross at step 20 shows the values of both runs' curves; the table has their last values.
    EXPECT_THAT(page, HasSubstr("<span class=\"reading\">" + shown(4 / std::sqrt(20)) + "  " +
                                shown(3 / std::sqrt(20)) + "</span>"));
    EXPECT_THAT(page, ContainsRegex("data-metric=\"lr\"[^>]*>0.5</td>"));
    EXPECT_THAT(page, HasSubstr("<tr class=\"differs\"><th>lr</th><td>0.1</td><td>0.2</td></tr>"));
    EXPECT_THAT(page, Not(HasSubstr("NaN")));
  }
  EXPECT_THAT(opened("page.html", "theme=light&axis=tokens&at=2000"),
              Names("data-theme=\"light\"", ">tokens seen</text>"));
}

// The main number for three seeds: their mean and interval.
TEST_F(ReportBrowser, SeedsAreAMeanAndABand) {
  for (int seed = 1; seed <= 3; ++seed)
    make_run("base" + std::to_string(seed), falling(50, 2 + seed), "seed: " + std::to_string(seed) + "\n");
  ASSERT_THAT(report({path("base1"), path("base2"), path("base3"), "--html", path("page.html")}), Succeeds());
  const Json mean = data_of("page.html")["comparison"]["groups"][0]["mean"];
  const Json told_of = told(
      "page.html",
      R"js((() => { const chart = charts.find((c) => c.name === "train loss"), [line] = chart.shownLines, at = line.x.indexOf(16);
    return {lines: chart.shownLines.length, mean: line.y[at], low: line.low[at], high: line.high[at],
            bands: chart.svg.querySelectorAll(".band").length, headline: byId("headline-value").textContent,
            legend: [...chart.svg.querySelectorAll(".key")].map((t) => t.textContent)}; })())js",
      "unit=nll_nat");
  EXPECT_EQ(told_of["lines"], 1);
  EXPECT_EQ(told_of["bands"], 1);
  EXPECT_NEAR(told_of["mean"].get<double>(), 1.0, 1e-5);  // mean of 3, 4 and 5, divided by sqrt(16)
  EXPECT_NEAR(told_of["low"].get<double>(), 0.75, 1e-5);
  EXPECT_NEAR(told_of["high"].get<double>(), 1.25, 1e-5);
  EXPECT_THAT(told_of["headline"].get<std::string>(), HasSubstr(shown(mean.get<double>()) + " ± "));
  EXPECT_THAT(told_of["legend"].dump(), Names("base", "mean of 3 seeds"));
  EXPECT_EQ(told("page.html", "charts[0].shownLines.length", "seeds=0"), 3);
}

// Events of a pointer that moves over a curve, drags over a part of it and double-clicks.
TEST_F(ReportBrowser, APointerReadsAndZooms) {
  make_run("a", falling(101, 4));
  ASSERT_THAT(report({path("a"), "--json", "--html", path("page.html")}), Succeeds());
  const Json saw =
      told("page.html", R"js((() => { const chart = charts.find((c) => c.name === "loss"), svg = chart.svg, saw = {};
    const at = (kind, step) => {
      const box = svg.getBoundingClientRect(), clientX = box.left + chart.left + (step - 1) / 100 * (chart.right - chart.left);
      svg.dispatchEvent(new PointerEvent(kind, {clientX, clientY: box.top + 50, bubbles: true}));
    };
    const label = () => byId("tip").hidden ? "none" : byId("tip").textContent;
    at("pointermove", 25.2);
    saw.reading = chart.reading.textContent;
    saw.label = label();
    at("pointerleave", 25);
    saw.left = chart.reading.textContent + label();
    at("pointerdown", 21);
    at("pointermove", 61);
    saw.brush = svg.querySelectorAll("rect.brush").length;
    at("pointerup", 61);
    saw.zoom = [chart.from, chart.to];
    saw.hash = location.hash;
    saw.enabled = !byId("whole").disabled;
    svg.dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
    saw.whole = [chart.from, chart.to];
    return saw; })())js",
           "unit=nll_nat");
  EXPECT_EQ(saw["reading"], shown(4 / std::sqrt(30) + 1) + "  0.8")
      << saw;  // the validation nearest to step 25; step 25
  EXPECT_THAT(saw["label"].get<std::string>(), ContainsRegex("Training0.8"));
  EXPECT_EQ(saw["left"], "none");
  EXPECT_EQ(saw["brush"], 1);
  EXPECT_NEAR(saw["zoom"][0].get<double>(), 21, 1);
  EXPECT_NEAR(saw["zoom"][1].get<double>(), 61, 1);
  EXPECT_THAT(saw["hash"].get<std::string>(), Names("from=", "to="));
  EXPECT_EQ(saw["enabled"], true);
  EXPECT_EQ(saw["whole"], Json::parse("[1, 101]"));
}

// Every kind of chart has titles and units inside the picture, and clips values outside its frame.
TEST_F(ReportBrowser, EveryChartHasTitlesAndUnits) {
  ASSERT_THAT(run("a", {"train.steps=30", "--ranks", "3", "batch.global=9", "batch.micro=0"}), Succeeds());
  ASSERT_THAT(report({path("a")}), Succeeds());
  const std::string look = R"js(figures.map((f) => ({name: f.name,
    title: f.svg.querySelector(".title")?.textContent, x: f.svg.querySelector(".xtitle")?.textContent,
    y: f.svg.querySelector(".ytitle")?.textContent, curve: f instanceof LineChart,
    free: [...f.svg.querySelectorAll("path.curve")].filter((p) => !p.closest("[clip-path]")).length,
    frame: f.svg.querySelector("clipPath rect")?.getAttribute("width") - (f.right - f.left)})))js";
  for (const std::string link : {"", "from=12&to=20&log=1", "axis=hours&unit=nll_bit"}) {
    const Json charts = told("a/report.html", look, link);
    ASSERT_GT(charts.size(), 8u) << charts;
    for (const Json& chart : charts) {
      EXPECT_NE(chart.value("title", ""), "") << chart;
      const bool curve = chart["curve"].get<bool>();
      EXPECT_THAT((curve ? chart["y"] : chart["x"]).get<std::string>(), ContainsRegex("[a-zA-Z].*\\(.+\\)")) << chart;
      if (!curve) continue;
      EXPECT_THAT(chart["x"].get<std::string>(),
                  ContainsRegex(link.empty() ? "step \\(updates\\)" : "\\((updates|s|min|h)\\)"));
      EXPECT_EQ(chart["free"], 0) << chart;
      EXPECT_EQ(chart["frame"], 0) << chart;
    }
  }
}

// A chart's table equals the run's records: every step and value, with six digits.
TEST_F(ReportBrowser, TheTableOfAChartIsTheRecords) {
  write("tiny.yaml", replaced(kTinyRecipe, "loss: .*", "loss: {name: full_softmax}"));  // one chart for both splits
  ASSERT_THAT(run("a", {"train.steps=30"}), Succeeds());
  ASSERT_THAT(report({path("a")}), Succeeds());
  const std::string csv = told("a/report.html", "charts.find((c) => c.name === 'loss').csv()", "unit=nll_nat");
  std::istringstream rows(csv), lines(read_file(folder_ / "a/metrics.jsonl"));
  std::string row;
  ASSERT_TRUE(std::getline(rows, row));
  EXPECT_EQ(row, "run,split,step,nll_nat");
  std::map<std::pair<std::string, int>, double> read, expected;
  for (; std::getline(rows, row);) {
    std::istringstream cells(row);
    std::string directory, split, step, value;
    std::getline(cells, directory, ',');
    std::getline(cells, split, ',');
    std::getline(cells, step, ',');
    std::getline(cells, value, ',');
    EXPECT_EQ(directory, path("a"));
    read[{split, std::stoi(step)}] = std::stod(value);
  }
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record["split"] != "rank") expected[{record["split"], record["step"]}] = record["nll_nat"];
  }
  ASSERT_GT(expected.size(), 3u);
  ASSERT_EQ(read.size(), expected.size());
  for (const auto& [at, value] : expected) EXPECT_NEAR(read[at], value, 1e-5 * value) << at.first << " " << at.second;
}

// A saved picture does not depend on the page, and uses the colour scheme of its reader.
TEST_F(ReportBrowser, ASavedPictureStandsAlone) {
  make_run("a", falling(50, 4));
  ASSERT_THAT(report({path("a")}), Succeeds());
  const std::string svg = told("a/report.html", "charts[0].svgText()");
  EXPECT_THAT(svg, AllOf(HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""), HasSubstr("prefers-color-scheme: dark"),
                         HasSubstr("#0072b2"), HasSubstr(">Training</text>"), Not(HasSubstr("var(")),
                         Not(HasSubstr("overlay")), Not(HasSubstr("http://localhost"))));
  const Json parsed =
      told("a/report.html",
           R"js((() => { const saved = new DOMParser().parseFromString(charts[0].svgText(), "image/svg+xml");
    return {error: saved.querySelector("parsererror") !== null, paths: saved.querySelectorAll("path.curve").length}; })())js");
  EXPECT_EQ(parsed, Json::parse(R"({"error": false, "paths": 2})"));
}

// All 24 runs look different, and each line is drawn as in the legend.
TEST_F(ReportBrowser, LegendsEqualTheirLines) {
  Words arguments;
  for (int i = 0; i < 24; ++i) {
    make_run("run" + std::to_string(i), falling(20, 3 + 0.1 * i), "lr: " + std::to_string(i) + "\n");
    arguments.push_back(path("run" + std::to_string(i)));
  }
  arguments.insert(arguments.end(), {"--html", path("page.html")});
  ASSERT_THAT(report(arguments), Succeeds());
  const Json looks = told(
      "page.html",
      R"js((() => { const svg = charts[0].svg, look = (e) => [e.getAttribute("stroke-dasharray"), e.getAttribute("class").replace(" best", "")].join();
    return {lines: [...svg.querySelectorAll("g path.curve")].map(look), legend: [...svg.querySelectorAll("line.curve")].map(look),
            names: [...svg.querySelectorAll(".key")].map((t) => t.textContent)}; })())js");
  ASSERT_EQ(looks["lines"].size(), 24u);
  EXPECT_EQ(looks["lines"], looks["legend"]);
  EXPECT_THAT(looks["names"][23].get<std::string>(), HasSubstr("run23"));
  std::set<Json> different(looks["lines"].begin(), looks["lines"].end());
  EXPECT_EQ(different.size(), 24u);
}

// Linear RGB as seen by an eye without green cones (Machado, Oliveira and Fernandes 2009, severity 1), then CIE Lab.
std::array<double, 3> lab_of_deuteranope(const std::string& hex) {
  std::array<double, 3> rgb{}, seen{}, xyz{}, f{};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    rgb[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  const double eye[3][3] = {
      {0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}};
  const double cie[3][3] = {{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}};
  const double white[3] = {0.9505, 1, 1.089};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) seen[i] += eye[i][j] * rgb[j];
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) xyz[i] += cie[i][j] * std::max(0.0, seen[j]);
    const double t = xyz[i] / white[i];
    f[i] = t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

TEST_F(ReportBrowser, ColoursDifferWithoutRedAndGreen) {
  make_run("a", falling(20, 4));
  ASSERT_THAT(report({path("a")}), Succeeds());
  for (const std::string theme : {"light", "dark"}) {
    const Json colours =
        told("a/report.html", "Array.from({length: kColours}, (_, i) => paletteOf('" + theme + "')(`--c${i}`))");
    ASSERT_EQ(colours.size(), 7u);
    for (size_t i = 0; i < 7; ++i) {
      for (size_t j = 0; j < i; ++j) {
        const auto a = lab_of_deuteranope(colours[i]), b = lab_of_deuteranope(colours[j]);
        EXPECT_GT(std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]), 10) << colours[i] << " " << colours[j];
      }
    }
  }
}

TEST_F(ReportBrowser, NumbersAreReadable) {
  make_run("a", falling(20, 4));
  ASSERT_THAT(report({path("a")}), Succeeds());
  EXPECT_EQ(
      told(
          "a/report.html",
          R"js([shown(1234567.8), shown(1234.5), shown(0.894427), shown(4.8e29), shown(0), shown(1.282e-5), shown(null),
                                   brief(9e31), brief(38050000), brief(25000), brief(1500), shownBytes(484), shownBytes(7700000)])js"),
      Json::parse(R"(["1,234,568", "1,234.5", "0.89443", "4.8e29", "0", "1.282e-5", "–",
                            "9e31", "38.05M", "25k", "1,500", "484 B", "7.7 MB"])"));
  // Every tick of a scale is within its bounds, and there are more than one but not too many.
  EXPECT_EQ(told("a/report.html", R"js([[1, 9], [0.5, 2e30], [20, 71], [1e-9, 1e-3], [24, 25]].map(([low, high]) => {
              const at = logTicks(low, high, 6); return at.every((v) => v >= low && v <= high) && at.length > 1 && at.length < 9; }))js"),
            Json::parse("[true, true, true, true, true]"));
}

// A click on a heading sorts the table and the curves; a text filters them.
TEST_F(ReportBrowser, RunsAreSortedAndFiltered) {
  make_run("a", falling(20, 4), "lr: 0.1\n");
  make_run("b", falling(20, 2), "lr: 0.2\n");
  make_run("c", falling(20, 3), "lr: 0.3\n");
  make_run("d", {{{"step", 1}, {"split", "train"}, {"lr", 1}}}, "lr: 0.4\n");
  ASSERT_THAT(report({path("a"), path("b"), path("c"), path("d"), "--html", path("page.html")}), Succeeds());
  const Json saw = told(
      "page.html",
      R"js((() => { const rows = () => [...byId("runs").querySelectorAll("tbody tr")].filter((r) => !r.hidden).map((r) => r.querySelector(".name").textContent.trim());
    const head = (name) => [...byId("runs").querySelectorAll("th button")].find((b) => b.textContent === name);
    const saw = {first: rows()};
    head("best valid ppl").click();
    saw.down = rows();
    head("run").click();
    saw.names = rows();
    byId("runs-find").value = "lr=0.2";
    byId("runs-find").dispatchEvent(new Event("input"));
    saw.filtered = rows();
    saw.lines = charts.find((c) => c.name === "train loss").shownLines.length;
    return saw; })())js");
  EXPECT_EQ(saw["first"], Json::parse(R"(["★ b", "c", "a", "d"])")) << saw;  // the best first, no value last
  EXPECT_EQ(saw["down"], Json::parse(R"(["a", "c", "★ b", "d"])"));
  EXPECT_EQ(saw["names"], Json::parse(R"(["a", "★ b", "c", "d"])"));
  EXPECT_EQ(saw["filtered"], Json::parse(R"(["★ b"])"));
  EXPECT_EQ(saw["lines"], 1);
}

// The bar of all classes together is the run's measured peak, not the sum of the classes' peaks.
TEST_F(ReportBrowser, MemoryBarsAreThePeak) {
  const auto rank = [](int number, double total) {
    return Json{{"step", 9},
                {"split", "rank"},
                {"rank", number},
                {"steps", 9},
                {"memory/parameters_peak_bytes", 500},
                {"memory/activations_peak_bytes", 400},
                {"memory/total_peak_bytes", total}};
  };
  make_run("a", {{{"step", 5}, {"split", "train"}, {"lr", 1}, {"skipped", 0}, {"once", 3}},
                 {{"step", 9}, {"split", "train"}, {"lr", 1}, {"skipped", 0}},
                 rank(0, 770),
                 rank(1, 760)});
  ASSERT_THAT(report({path("a")}), Succeeds());
  const Json saw = told(
      "a/report.html",
      R"js(({ bars: figures.filter((f) => f.name.startsWith("memory")).map((f) => [...f.svg.querySelectorAll("rect[data-value]")].map((r) => Number(r.dataset.value))),
    zero: charts.filter((c) => c.card.closest("#zero")).map((c) => c.name), all: charts.map((c) => c.name), once: byId("once").textContent, tile: document.querySelector('[data-tile="peak memory of a rank"]')?.textContent}))js");
  EXPECT_EQ(saw["bars"], Json::parse("[[770, 760], [770, 500, 400]]")) << saw;
  EXPECT_EQ(saw["zero"], Json::parse(R"(["train skipped"])"));
  EXPECT_EQ(saw["all"], Json::parse(R"(["train lr", "train skipped"])"));  // one value has no curve
  EXPECT_EQ(saw["once"], "Recorded once, so without a curve: once 3.");
}

// Values of a diverged run do not determine the range, and its end is marked.
TEST_F(ReportBrowser, ARunThatDiverged) {
  make_run("good", falling(20, 4), "lr: 0.1\n");
  std::vector<Json> bad;
  for (int step = 1; step <= 5; ++step)
    bad.push_back({{"step", step},
                   {"split", "train"},
                   {"nll_nat", step == 5 ? Json("NaN") : Json(std::pow(10, step))},
                   {"tokens", step}});
  make_run("bad", bad, "lr: 9\n", R"({"state":"failed","cause":"diverged","step":4,"reason":"the loss is NaN"})");
  ASSERT_THAT(report({path("good"), path("bad"), "--html", path("page.html")}), Succeeds());
  const Json saw = told("page.html", R"js((() => { const chart = charts.find((c) => c.name === "train loss");
    return {top: chart.bounds(view, chart.shownLines).high, note: chart.note.textContent, best: data.comparison.best_run,
            legend: [...chart.svg.querySelectorAll(".key")].map((t) => t.textContent), state: document.querySelector("td.bad").textContent}; })())js",
                        "unit=nll_nat");
  EXPECT_LT(saw["top"].get<double>(), 5) << saw;
  EXPECT_NE(saw["note"], "");
  EXPECT_EQ(saw["best"], 0);
  EXPECT_THAT(saw["legend"][1].get<std::string>(), HasSubstr("(diverged)"));
  EXPECT_EQ(saw["state"], "diverged");
}

// A sweep over one axis has bars of its means, and no heat map; its numbers have one format.
TEST_F(ReportBrowser, ASweepOfOneAxis) {
  ASSERT_THAT(lmx({"sweep", path("tiny.yaml"), "train.steps=6", "optimizer.lr=3e-04,1e-2", "--seeds", "2", "--out",
                   path("sweep")}),
              Succeeds());
  ASSERT_THAT(report({path("sweep")}), Succeeds());
  const Json saw = told("sweep/report.html", R"js(({maps: figures.filter((f) => f instanceof HeatMap).length,
    labels: figures.find((f) => f.name === "sweep values").rows.map((r) => r.label), controls: byId("heat-controls").children.length,
    cells: [...new Set([...document.querySelectorAll("#runs td[data-metric=lr]")].map((c) => c.textContent))].sort()}))js");
  EXPECT_EQ(saw["maps"], 0) << saw;
  EXPECT_EQ(saw["labels"], Json::parse(R"(["3e-4", "0.01"])"));
  EXPECT_EQ(saw["cells"], Json::parse(R"(["0.01", "3e-4"])"));
  EXPECT_EQ(saw["controls"], 0);
}

// Every value that the pointer reads can be read with the keyboard.
TEST_F(ReportBrowser, KeysReadTheValues) {
  make_run("a", falling(50, 4));
  ASSERT_THAT(run("b", {"train.steps=6"}), Succeeds());
  ASSERT_THAT(report({path("a"), path("b"), "--html", path("page.html")}), Succeeds());
  const Json saw = told(
      "page.html", R"js((() => { const saw = {focusable: figures.every((f) => f.svg.getAttribute("tabindex") === "0")};
    const press = (figure, key) => { figure.svg.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
                                     return byId("tip").hidden ? "none" : byId("tip").textContent; };
    const chart = charts.find((c) => c.name === "valid loss");
    saw.first = press(chart, "Home"); saw.second = press(chart, "ArrowRight"); saw.back = press(chart, "ArrowLeft");
    saw.last = press(chart, "End"); saw.left = press(chart, "Escape");
    const bars = figures.find((f) => f.name === "memory classes " + data.runs[1].name);
    saw.bars = bars.targets.map(() => press(bars, "ArrowRight"));
    saw.values = [...bars.svg.querySelectorAll("rect[data-value]")].map((r) => shownBytes(Number(r.dataset.value)));
    return saw; })())js",
      "unit=nll_nat");
  EXPECT_EQ(saw["focusable"], true) << saw;
  EXPECT_EQ(saw["first"], saw["back"]);
  EXPECT_THAT(saw["second"].get<std::string>(), HasSubstr(shown(4 / std::sqrt(10) + 1)));
  EXPECT_THAT(saw["last"].get<std::string>(), HasSubstr(shown(4 / std::sqrt(50) + 1)));
  EXPECT_EQ(saw["left"], "none");
  ASSERT_GT(saw["values"].size(), 3u);
  for (size_t i = 0; i < saw["values"].size(); ++i)
    EXPECT_THAT(saw["bars"][i].get<std::string>(), HasSubstr(saw["values"][i].get<std::string>()));
}

// The loss over sampled words has its own chart, whose title says why.
TEST_F(ReportBrowser, ASampledLossIsNotBesideTheValidation) {
  make_run("a", falling(50, 4), "seed: 1\nloss:\n  name: sampled_softmax\n  samples: 20\n");
  make_run("b", falling(50, 4));
  const char* look = "charts.filter((c) => /loss/.test(c.name)).map((c) => [c.name, c.title])";
  ASSERT_THAT(report({path("a")}), Succeeds());
  ASSERT_THAT(report({path("b")}), Succeeds());
  const Json sampled = told("a/report.html", look), full = told("b/report.html", look);
  ASSERT_EQ(sampled.size(), 2u) << sampled;
  EXPECT_EQ(sampled[0], Json::parse(R"(["valid loss", "Validation perplexity"])"));
  EXPECT_EQ(sampled[1],
            Json::parse(R"(["train loss", "Training perplexity over sampled words, not comparable with validation"])"));
  ASSERT_EQ(full.size(), 1u) << full;
  EXPECT_EQ(full[0][0], "loss");
}

// On paper, headings stay, and neither tables nor texts are clipped.
TEST_F(ReportBrowser, APrintedPageIsWhole) {
  Words arguments;
  for (int i = 0; i < 30; ++i) {
    make_run("run" + std::to_string(i), falling(20, 3 + 0.1 * i),
             "lr: " + std::to_string(i) + "\nclip: " + std::to_string(2 * i) + "\n");
    arguments.push_back(path("run" + std::to_string(i)));
  }
  arguments.insert(arguments.end(), {"--html", path("page.html")});
  ASSERT_THAT(report(arguments), Succeeds());
  // The rules for paper apply to the screen if they are taken out of their condition.
  const Json saw = told("page.html", R"js((() => { const style = document.querySelector("style"), sheet = style.sheet;
    const rules = [...sheet.cssRules].filter((r) => r.conditionText === "print" || r.media?.mediaText === "print").flatMap((r) => [...r.cssRules].map((c) => c.cssText));
    style.after(Object.assign(document.createElement("style"), {textContent: rules.join("\n")}));
    document.body.style.width = "720px";
    update();
    const clipped = [...document.querySelectorAll(".scroll, .tall, pre, table")].filter((e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1);
    return {rules: rules.length, heads: [...byId("runs").querySelectorAll("thead .sort")].map((b) => getComputedStyle(b).display),
            clipped: clipped.map((e) => e.id || e.className || e.tagName), wide: document.documentElement.scrollWidth,
            buttons: getComputedStyle(byId("theme")).display}; })())js");
  EXPECT_GT(saw["rules"], 5) << saw;
  EXPECT_GT(saw["heads"].size(), 4u);
  for (const Json& display : saw["heads"]) EXPECT_NE(display, "none");
  EXPECT_EQ(saw["clipped"], Json::array());
  EXPECT_EQ(saw["buttons"], "none");
}

// A plan's page is as wide as the window, and its numbers are for reading.
TEST_F(ReportBrowser, APlanFitsIntoTheWindow) {
  const Outcome o = lmx({"plan", source_path("/recipes/patwary_word_1b.yaml"), "--machine", "h100_node", "--ranks",
                         "8,64", "sync=allgather,unique", "--out", path("plan.html")});
  ASSERT_THAT(o, Succeeds());
  for (const std::string size : {"1200,900", "600,900"}) {
    const std::string page = opened("plan.html", "", size);
    EXPECT_TRUE(all_matches(page, ">[0-9]*\\.0*[1-9][0-9]{6,}<").empty());
  }
  const Json saw = told("plan.html", "({wide: document.documentElement.scrollWidth, window: innerWidth})");
  EXPECT_LE(saw["wide"].get<int>(), saw["window"].get<int>()) << saw;
}

TEST_F(ReportBrowser, ASweep) {
  ASSERT_THAT(lmx({"sweep", path("tiny.yaml"), "train.steps=12", "optimizer.lr=0.001,0.02", "clip=1,2", "--out",
                   path("sweep")}),
              Succeeds());
  ASSERT_THAT(report({path("sweep")}), Succeeds());
  double best = INFINITY;
  std::string place;
  const Json data = data_of("sweep/report.html");
  for (const Json& point : data["sweep"]["points"]) {
    if (point["value"].get<double>() >= best) continue;
    best = point["value"].get<double>();
    place = point["place"][0].get<std::string>() + "|" + point["place"][1].get<std::string>();
  }
  EXPECT_EQ(data["comparison"]["metric"], data["sweep"]["metric"]);
  const Json saw = told(
      "sweep/report.html",
      R"js((() => { const map = figures.find((f) => f instanceof HeatMap), best = map.svg.querySelector("[data-best]");
    return {cells: map.svg.querySelectorAll("[data-cell]").length, best: best.textContent, place: best.dataset.cell,
            x: map.svg.querySelector(".xtitle").textContent, y: map.svg.querySelector(".ytitle").textContent,
            lines: figures.find((f) => f instanceof ParallelAxes).svg.querySelectorAll("path.curve").length,
            headline: byId("headline-value").textContent, csv: map.csv().split("\n").length}; })())js");
  EXPECT_EQ(saw["cells"], 4) << saw;
  EXPECT_EQ(saw["best"], shown(best));
  EXPECT_EQ(saw["headline"], shown(best));
  EXPECT_EQ(saw["place"], place);
  EXPECT_EQ(saw["x"], "clip");
  EXPECT_EQ(saw["y"], "optimizer.lr");
  EXPECT_EQ(saw["lines"], 4);
  EXPECT_EQ(saw["csv"], 6);  // a heading, four cells, the end
}

}  // namespace
}  // namespace lmx_test
