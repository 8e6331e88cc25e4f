// Ranks that are processes, with a CUDA device: what they exchange goes through the memory of the host.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "comm/mpi_here.h"
#include "device.h"
#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using Words = std::vector<std::string>;

class DeviceRanks : public RunTest {
 protected:
  void SetUp() override {
    if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
    const Outcome o = run_lmx({"plugins", "info", "mpi"}, environment());
    if (o.out.find("heartbeat_s") == std::string::npos) GTEST_SKIP() << "this build has no MPI";
  }
  std::vector<double> losses(const std::string& dir, Words words) const {
    words.insert(words.end(), {"train.steps=6", "train.log_every=1"});
    const Outcome o = run(dir, words);
    EXPECT_EQ(o.code, 0) << dir << ": " << o.err;
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    std::vector<double> all;
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["split"] == "train") all.push_back(record["nll_nat"]);
    }
    return all;
  }
};

TEST_F(DeviceRanks, ProcessesExchangeThroughTheHost) {
  for (const std::string strategy : {"unique", "one_bit"}) {
    const Words sync{"sync.rest.params=.*", "sync.rest.strategy=" + strategy}, mpi{"comm={name: mpi, ranks: 2}"};
    const auto with = [](Words a, const Words& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    const std::vector<double> device = losses(strategy, with(with(sync, mpi), {"device=cuda"}));
    const std::vector<double> threads = losses(strategy + "_threads", with(sync, {"--ranks", "2", "device=cuda"}));
    const std::vector<double> cpu = losses(strategy + "_cpu", with(sync, mpi));
    EXPECT_EQ(device.size(), 6u);
    EXPECT_EQ(device, threads);  // both add in rank order
    expect_close(device, cpu, 1e-5);
  }
}

}  // namespace
}  // namespace lmx_test
