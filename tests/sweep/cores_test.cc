// Points of a sweep and cells of an experiment that run at the same time use separate cores, or one thread each if
// there are not enough cores. The tests use two cores, on any machine.
#include <filesystem>

#include "paths.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class SharedCores : public SweepTest {
 protected:
  SharedCores() {
    fs::create_directory(folder_ / "experiments");
    write("experiments/seeds.yaml",
          "title: T\npaper: P\nscales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=2]}}\n"
          "axes: {seed: [1, 2, 3]}\noverrides: ['seed=${seed}']\nmeasures: {ppl: {key: ppl}}\n");
  }

  // The threads of each run below `folder`, in the order of their names.
  std::vector<int64_t> threads(std::vector<std::string> command, const std::string& folder) const {
    command.insert(command.begin(), {"taskset", "-c", two_cores()});
    auto free = environment();
    free["OMP_NUM_THREADS"] = "";
    const Outcome o = run_process(command, free);
    EXPECT_EQ(o.code, 0) << o.err;
    std::map<std::string, int64_t> all;
    for (const auto& entry : fs::directory_iterator(path(folder))) {
      if (!entry.is_directory()) continue;
      const Json p = Json::parse(read_file(entry.path() / "provenance.json"));
      all[entry.path().filename().string()] = p["starts"].back()["compute"]["threads"];
    }
    std::vector<int64_t> list;
    for (const auto& [id, count] : all) list.push_back(count);
    return list;
  }
  std::vector<int64_t> of_sweep(const std::string& out, const std::string& seeds, const std::string& jobs,
                                const std::string& asked = "0") const {
    return threads(sweep_words(out, {"train.steps=2", "seed=" + seeds, "--jobs", jobs, "threads=" + asked}),
                   out + "/points");
  }
  std::vector<int64_t> of_experiment(const std::string& out, const std::vector<std::string>& cells,
                                     const std::string& jobs, const std::string& asked = "0") const {
    std::vector<std::string> command{
        build_path("/bin/lmx"), "experiment", "run", path("experiments/seeds.yaml"), "--out", path(out), "--jobs", jobs,
        "threads=" + asked};
    for (const std::string& cell : cells) command.insert(command.end(), {"--only", cell});
    return threads(command, out + "/cells");
  }
};

TEST_F(SharedCores, OfPoints) {
  if (two_cores().empty()) GTEST_SKIP() << "needs two cores and taskset (Debian: util-linux)";
  EXPECT_THAT(of_sweep("one", "1,2", "1"), ElementsAre(2, 2));
  EXPECT_THAT(of_sweep("two", "1,2", "2"), ElementsAre(1, 1));
  EXPECT_THAT(of_sweep("many", "1,2,3", "3"), ElementsAre(1, 1, 1));
  EXPECT_THAT(of_sweep("few", "1,2", "9"), ElementsAre(1, 1));
  EXPECT_THAT(of_sweep("asked", "1,2", "2", "2"), ElementsAre(2, 2));
}

TEST_F(SharedCores, OfCells) {
  if (two_cores().empty()) GTEST_SKIP() << "needs two cores and taskset (Debian: util-linux)";
  EXPECT_THAT(of_experiment("one", {"1", "2"}, "1"), ElementsAre(2, 2));
  EXPECT_THAT(of_experiment("two", {"1", "2"}, "2"), ElementsAre(1, 1));
  EXPECT_THAT(of_experiment("many", {"*"}, "3"), ElementsAre(1, 1, 1));
  EXPECT_THAT(of_experiment("alone", {"2"}, "8"), ElementsAre(2));  // the only cell gets both cores
  EXPECT_THAT(of_experiment("asked", {"*"}, "2", "2"), ElementsAre(2, 2, 2));
}

}  // namespace
}  // namespace lmx_test
