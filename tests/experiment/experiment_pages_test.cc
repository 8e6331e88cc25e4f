// lmx experiment all and doc: what all experiments need, and their tables on pages.
#include <set>

#include "app/jobs/launcher.h"
#include "app/print/words.h"
#include "app/report/chart.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

constexpr const char* kHours = R"yaml(title: Hours
place: Table 9
scales:
  paper: {recipe: ../../tiny.yaml, plan: {machine: h100_node, epoch_tokens: 3000}}
  desk: {recipe: ../../tiny.yaml, overrides: [train.steps=7200], cells: [{G: 2}, {G: 4, run: false}]}
  gpu: {recipe: ../../tiny.yaml, overrides: [train.steps=30], cells: [{G: 2}]}
axes: {G: [2, 4, 8]}
cells: [{G: 2}, {G: [4, 8], run: false}]
overrides: ["comm.ranks=${G}", batch.micro=0]
measures:
  ppl: {key: ppl, class: quality, paper: {"2": 9}}
  hours: {plan: hours_per_epoch, unit: h, paper: {"2": 1, "4": 2e-9}}
)yaml";

class ExperimentPages : public RunTest {
 protected:
  ExperimentPages() {
    fs::create_directories(folder_ / "experiments/some2018");
    write("tiny.yaml", std::string(kTinyRecipe) + "comm: {name: virtual, ranks: 2}\n");
    write("experiments/some2018/hours.yaml", kHours);
  }
  void expect_both_ranks_here(double hours) const;
  void expect_both_ranks_on_one_gpu(double hours) const;
  // Runs in the folder, where `experiments/` is found first.
  Outcome here(const std::string& words, const std::string& in = "") const {
    return run_process(
        {"/bin/sh", "-c",
         "cd '" + (in.empty() ? folder_.string() : in) + "' && '" + build_path("/bin/lmx' experiment ") + words},
        environment());
  }
};

// This computer does the work of both virtual ranks, on as many of the machine's eight cores as it has itself.
void ExperimentPages::expect_both_ranks_here(double hours) const {
  const auto cores = static_cast<double>(std::min<int64_t>(2, lmx::app::jobs::own_core_count()));
  const Outcome o = lmx({"plan", path("tiny.yaml"), "--machine", "desk_10gbe", "--ranks", "2", "train.steps=7200",
                         "batch.global=8", "batch.micro=0", "machine.device.memory_gb_s=" + std::to_string(15 * cores),
                         "machine.device.peak_tflops.fp32=" + std::to_string(1.02 * cores / 8), "--json"});
  ASSERT_THAT(o, Succeeds());
  const Json rank = Json::parse(o.out)[0];
  const double compute = 7200 * rank["compute_s"].get<double>() / 3600,
               exchange = 7200 * rank["comm_s"].get<double>() / 3600;
  EXPECT_GT(hours, 1.2 * compute);  // both ranks, with one update
  EXPECT_LT(hours, 2 * (compute + exchange));
}

// At a scale of another name, ranks share one device, and compute one after the other.
void ExperimentPages::expect_both_ranks_on_one_gpu(double hours) const {
  const Outcome apart = lmx({"plan", path("tiny.yaml"), "--machine", "h100_node", "--ranks", "2", "batch.global=8",
                             "batch.micro=0", "--json"});
  ASSERT_THAT(apart, Succeeds());
  EXPECT_GT(hours, 1.2 * 30 * Json::parse(apart.out)[0]["step_s"].get<double>() / 3600);
}

TEST_F(ExperimentPages, AllListsTimeAndData) {
  const Outcome o = here("all --dry-run --json");
  ASSERT_THAT(o, Succeeds());
  const Json all = Json::parse(o.out);
  std::set<std::string> scales;
  std::map<std::string, double> hours;
  bool missing = false;
  for (const Json& e : all["experiments"]) {
    const std::string id = e["experiment"].get<std::string>() + " " + e["scale"].get<std::string>();
    EXPECT_TRUE(scales.insert(id).second) << id;
    hours[e["scale"]] += e["hours"].get<double>();
    EXPECT_GT(e["runs"].get<size_t>() + e["planned"].get<size_t>(), 0u) << id;
    for (const Json& line : e["missing_data"])
      missing = missing || line.get<std::string>().find("to get it") != std::string::npos;
    if (id == "some2018/hours desk") {
      EXPECT_EQ(e["runs"], 1);
      EXPECT_EQ(e["planned"], 0);
      EXPECT_EQ(e["machine"], "desk_10gbe");
      expect_both_ranks_here(e["hours"]);
    }
    if (id == "some2018/hours gpu") expect_both_ranks_on_one_gpu(e["hours"]);
    if (e["scale"] == "gpu") {  // the shipped ones take minutes of one GPU
      EXPECT_EQ(e["machine"], "h100_node") << id;
      EXPECT_LT(e["hours"].get<double>(), 10.0 / 60) << id;
    }
    if (id == "some2018/hours paper") {
      EXPECT_EQ(e["machine"], "h100_node");
      EXPECT_EQ(e["planned"], 2);
      EXPECT_EQ(e["ranks"], 2);
    }
  }
  EXPECT_TRUE(scales.contains("some2018/hours desk"));
  EXPECT_TRUE(scales.contains("patwary2018/table3_memory paper"));
  EXPECT_TRUE(scales.contains("patwary2018/figure7_seeds gpu"));
  EXPECT_TRUE(missing) << "no line says how a missing corpus can be had";
  for (const auto& [scale, sum] : hours) EXPECT_NEAR(all["total"][scale]["hours"].get<double>(), sum, 1e-9 * sum);

  const Outcome text = here("all --dry-run --scale desk --machine h100_node");
  EXPECT_THAT(text.out, Names("EXPERIMENT", "some2018/hours", "h100_node", "total"));
  EXPECT_THAT(text.out, Not(HasSubstr(" paper ")));
  EXPECT_THAT(here("all"), Refuses("--dry-run"));
  EXPECT_THAT(here("all --dry-run --scale gpuu"), Refuses("'gpuu'", "'gpu'?", "desk, gpu, paper"));
}

TEST_F(ExperimentPages, DryRunOnOneDeviceEstimates) {
  ASSERT_THAT(here("run some2018/hours --scale gpu --dry-run"),
              Prints("MEMORY", "TIME", "by `lmx plan` on h100_node, one cell after the other: "));
  EXPECT_THAT(here("run some2018/hours --scale desk --dry-run").out, Not(HasSubstr("MEMORY")));
}

// A table of measured numbers names the device; one of planned numbers is the same on every machine.
TEST_F(ExperimentPages, DocNamesTheDevice) {
  write("page.md", "<!-- experiment some2018/hours gpu -->\n<!-- end -->\n");
  ASSERT_THAT(here("doc page.md"), Succeeds());
  EXPECT_THAT(read_file(folder_ / "page.md"), Not(HasSubstr("Measured")));  // no cell has run
  ASSERT_THAT(here("run some2018/hours --scale gpu"), Succeeds());
  const std::string provenance = path("runs/experiments/some2018/hours/gpu/cells/2/provenance.json");
  Json run = Json::parse(read_file(provenance));
  const std::string processor = run["starts"][0]["host"]["cpu"];
  EXPECT_THAT(read_file(folder_ / "runs/experiments/some2018/hours/gpu/table.md"),
              HasSubstr("scale gpu, recipe `tiny.yaml`. Measured on " + processor + "."));
  run["starts"][0]["compute"]["cuda"] = {{"name", "Some GPU"}};
  write("runs/experiments/some2018/hours/gpu/cells/2/provenance.json", run.dump());
  ASSERT_THAT(here("doc page.md"), Succeeds());
  EXPECT_THAT(read_file(folder_ / "page.md"), Names("scale gpu: ", "Measured on Some GPU.", "| ppl | 2 | 9 |"));
  EXPECT_EQ(Json::parse(here("show some2018/hours --scale gpu --json").out)["devices"], Json{"Some GPU"});
}

TEST_F(ExperimentPages, DocWritesPlannedTables) {
  const std::string page =
      "# Page\n\nBefore.\n\n<!-- experiment some2018/hours paper planned -->\nold\n<!-- end -->\n\n"
      "<!-- experiment some2018/hours desk -->\nkept\n<!-- end -->\nAfter.\n";
  write("page.md", page);
  EXPECT_THAT(here("doc --check page.md"), Fails("page.md", "not what lmx writes"));
  EXPECT_EQ(read_file(folder_ / "page.md"), page);
  ASSERT_THAT(here("doc page.md"), Warns("some2018/hours desk is left as it is"));
  const std::string text = read_file(folder_ / "page.md");
  EXPECT_THAT(text, Names("Before.", "After.", "kept", "| hours (h) | 2 | 1 |", "planned", "outside",
                          "by `lmx plan` for h100_node"));
  EXPECT_THAT(text, Not(HasSubstr("old\n")));
  EXPECT_THAT(text, Not(HasSubstr("| ppl |")));  // it depends on a run
  EXPECT_THAT(here("doc --check page.md"), Succeeds());

  ASSERT_THAT(here("run some2018/hours --scale desk train.steps=3 train.eval_every=3"), Succeeds());
  const Outcome other = here("doc page.md");
  EXPECT_EQ(other.code, 2) << "the cells ran with another recipe";

  for (const std::string bad :
       {"<!-- experiment some2018/hours paper planned -->\n", "<!-- experiment some2018/hours -->\n<!-- end -->\n"}) {
    write("bad.md", bad);
    EXPECT_THAT(here("doc bad.md"), Refuses("bad.md", "begins no block")) << bad;
  }
}

TEST_F(ExperimentPages, DocNeedsPagesWithBlocks) {
  write("page.md", "<!-- experiment some2018/hours paper planned -->\n<!-- end -->\n");
  write("plain.md", "# Page\n");
  EXPECT_THAT(here("doc page.md nope.md"), Refuses("nope.md"));
  for (const std::string command : {"doc plain.md", "doc --check plain.md"})
    EXPECT_THAT(here(command), Refuses("plain.md", "no block <!-- experiment"));
  EXPECT_THAT(here("doc plain.md page.md"), Warns("plain.md has no block", "wrote page.md"));
}

// The tables on the pages of the papers are those that the command writes.
TEST_F(ExperimentPages, ShippedPagesAreUpToDate) {
  size_t blocks = 0;
  for (const auto& page : fs::directory_iterator(source_path("/docs/experiments"))) {
    const std::string text = read_file(page.path());
    for (size_t at = 0; (at = text.find(" planned -->", at)) != std::string::npos; ++at) ++blocks;
  }
  EXPECT_GE(blocks, 4u);
  EXPECT_THAT(here("doc --check docs/experiments/*.md", source_path()), Succeeds());
}

TEST(HtmlPage, ShowsMarkdown) {
  const std::string markdown = "# A < B\n\nBoth **pay *below* 2**, 3 * 4 of `x`.\n\n" +
                               lmx::app::markdown_table({{"name", "n"}, {"a|b", "*1*"}}, " --- ") +
                               "\n- one\n- **two**\n";
  const std::string page = lmx::app::html_page("t & u", markdown, {"<svg id='s'/>"});
  EXPECT_THAT(page, HasSubstr("<title>t &amp; u</title>"));
  EXPECT_THAT(page,
              HasSubstr("<h1>A &lt; B\n</h1>\n<p>Both <b>pay <em>below</em> 2</b>, 3 * 4 of <code>x</code>.\n</p>\n"
                        "<table><tr><th> name </th><th> n </th></tr>\n<tr><td> a|b </td><td> <em>1</em> </td></tr>\n"
                        "</table>\n<ul><li>one</li>\n<li><b>two</b></li>\n</ul>\n<p><svg id='s'/></p>\n</body>"));
}

}  // namespace
}  // namespace lmx_test
