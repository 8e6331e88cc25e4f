// The experiments in experiments/: each composes at each of its scales, is in the documentation, and together they have
// every table and figure of the papers.
#include <atomic>
#include <future>
#include <thread>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

// Files by id, "patwary2018/table3_memory".
std::map<std::string, fs::path> shipped_experiments() {
  std::map<std::string, fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(source_path("/experiments")))
    if (entry.path().extension() == ".yaml")
      files[(entry.path().parent_path().filename() / entry.path().stem()).string()] = entry.path();
  return files;
}

// The value of a line "key: value" of the file; "" if there is none.
std::string line_of(const fs::path& file, const std::string& key) {
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ": ")) return line.substr(key.size() + 2);
  return "";
}

// The scales of an experiment's text.
Words scales_of(const std::string& text) {
  const std::string recipe = ":\n    recipe: ";
  Words scales;
  for (size_t at = 0; (at = text.find(recipe, at)) != std::string::npos; ++at) {
    const size_t begin = text.rfind("\n  ", at) + 3;
    scales.push_back(text.substr(begin, at - begin));
  }
  return scales;
}

// The planned blocks of the pages of the papers, "<!-- experiment patwary2018/table3_hours paper planned -->".
std::string planned_blocks() {
  std::string blocks;
  for (const auto& page : fs::directory_iterator(source_path("/docs/experiments"))) {
    std::istringstream lines(read_file(page.path()));
    for (std::string line; std::getline(lines, line);)
      if (line.ends_with(" planned -->")) blocks += line + "\n";
  }
  return blocks;
}

class ShippedExperiments : public RunTest {
 protected:
  Outcome experiment(const Words& words) const { return lmx(joined({"experiment"}, words)); }
};

// The paper's Table V: its batches and learning rates, whose ratios differ from those of the desk scale in some rows.
TEST_F(ShippedExperiments, WeakScalingAtThePapersScale) {
  const Outcome o = experiment({"run", source_path("/experiments/patwary2018/table5_weak_scaling.yaml"), "--scale",
                                "paper", "--only", "*-1", "--dry-run"});
  ASSERT_THAT(o, Succeeds());
  for (const char* row :
       {"comm.ranks=6 batch.global=768 optimizer.lr=2e-04", "comm.ranks=24 batch.global=3072 optimizer.lr=4e-04",
        "comm.ranks=192 batch.global=12288 optimizer.lr=5e-04"})
    EXPECT_THAT(o.out, HasSubstr(row));
}

// ExperimentPages.ShippedPagesAreUpToDate composes those whose plans are on a page.
TEST_F(ShippedExperiments, Compose) {
  const auto files = shipped_experiments();
  const std::string planned = planned_blocks();
  EXPECT_GE(files.size(), 30u);
  std::vector<Words> commands;
  for (const auto& [id, file] : files) {
    const std::string text = read_file(file);
    const Words scales = scales_of(text);
    EXPECT_FALSE(scales.empty()) << file;
    for (const std::string& scale : scales)
      if (planned.find("experiment " + id + " " + scale + " planned") == std::string::npos)
        commands.push_back({"run", file.string(), "--scale", scale, "--dry-run"});
  }
  std::atomic<size_t> next = 0;
  std::vector<std::future<void>> workers(std::max(1u, std::thread::hardware_concurrency()));
  for (std::future<void>& worker : workers)
    worker = std::async(std::launch::async, [&] {
      for (size_t i; (i = next++) < commands.size();) {
        EXPECT_THAT(experiment(commands[i]), Succeeds()) << commands[i][1] << commands[i][3];
      }
    });
  for (std::future<void>& worker : workers) worker.get();
}

// Planned cells need neither the corpus nor a run. experiment_pages_test.cc shows that every experiment can be planned.
TEST_F(ShippedExperiments, PlannedNumbersAreShown) {
  for (const std::string id : {"patwary2018/table5_hours", "puri2018/figure2b_hours", "xiao2017/one_bit_speed"}) {
    const Outcome o =
        experiment({"show", source_path("/experiments/" + id + ".yaml"), "--scale", "paper", "--out", path("none")});
    EXPECT_EQ(o.code, 0) << id << ": " << o.err;
    EXPECT_THAT(o.out, AllOf(HasSubstr("planned)"), HasSubstr("(set)"), testing::Not(HasSubstr("nan")),
                             testing::Not(HasSubstr(source_path()))))
        << id;
  }
}

TEST_F(ShippedExperiments, AreListed) {
  const std::string line = "cd '" + source_path() + "' && '" + build_path("/bin/lmx' experiment ");
  const Outcome list = run_process({"/bin/sh", "-c", line + "list"}, environment());
  const std::string page = read_file(source_path("/docs/experiments.md"));
  for (const auto& [id, file] : shipped_experiments()) {
    EXPECT_THAT(list.out, HasSubstr(id + " "));
    EXPECT_THAT(page, HasSubstr("| `" + id + "` |")) << "docs/experiments.md lacks it";
  }
  EXPECT_THAT(run_process({"/bin/sh", "-c", line + "run table3_memori --dry-run"}, environment()),
              Refuses("'table3_memory'?"));
}

// The tables and figures with results. The others show a model, a picture of a technique or the hardware.
TEST_F(ShippedExperiments, HaveEveryTableAndFigureOfThePapers) {
  const std::map<std::string, Words> results{
      {"patwary2018",
       {"Table I", "Table III", "Table IV", "Table V", "Figure 1", "Figure 5", "Figure 6", "Figure 7", "Figure 8",
        "section III-A", "compression-scaling"}},
      {"xiao2017",
       {"Table 2 .PTB.", "Table 2 .FBIS.", "Table 2 .Xinhua.", "Figure 3", "Figure 4", "Figure 5", "Figure 6"}},
      {"puri2018", {"Figure 2b", "Figures 3a and 3b", "Figure 4", "Figure 5", "Figure 6b"}},
      {"ott2018",
       {"Table 1", "Table 2", "Tables 2 and 3", "Figure 1", "Figure 4", "Figure 5", "Figure 6", "English-French"}}};
  std::map<std::string, std::string> places;
  for (const auto& [id, file] : shipped_experiments())
    places[id.substr(0, id.find('/'))] += "; " + line_of(file, "place") + ";";
  for (const auto& [paper, wanted] : results)
    for (const std::string& place : wanted)
      EXPECT_FALSE(lmx_test::first_match(places[paper], "[ ]" + place + "[ ,;]").empty()) << paper << ": " << place;
}

}  // namespace
}  // namespace lmx_test
