// The conformance suite between processes. Their results must be bit-equal to those of virtual ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <tuple>

#include "comm/process_jobs.h"
#include "device.h"
#include "paths.h"
#include "process/emulated.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"

namespace lmx::sync_test {
namespace {

uint64_t digest_of_virtual_ranks(int ranks, int per_node, Device device = {}) {
  uint64_t digest = 0;
  make_group(ranks, per_node)->run([&](Communicator& comm) {
    const uint64_t own = conformance(comm, device).digest;
    if (comm.rank() == 0) digest = own;
  });
  return digest;
}

// The program that each rank of a job runs.
std::string rank_program() {
  return lmx_test::build_path("/tests/sync/conformance_rank");
}

class Processes : public testing::TestWithParam<std::tuple<const char*, int, int>> {};

TEST_P(Processes, ConformAndEqualVirtualRanksInEveryBit) {
  const auto [group, ranks, per_node] = GetParam();
  if (const std::string why = lmx_test::why_no_job(group); !why.empty()) GTEST_SKIP() << why;
  lmx_test::Job job({rank_program(), group, std::to_string(ranks), std::to_string(per_node)});
  const uint64_t digest = digest_of_virtual_ranks(ranks, per_node);
  EXPECT_EQ(job.wait(240), 0);
  EXPECT_EQ(job.err(), "");
  EXPECT_EQ(job.out(), str("digest ", digest, "\n"));
}
// The last number: ranks of each node; 0: those of a host, which is one node here.
using Job = std::tuple<const char*, int, int>;
INSTANTIATE_TEST_SUITE_P(All, Processes,
                         testing::Values(Job{"mpi", 1, 0}, Job{"mpi", 2, 0}, Job{"mpi", 3, 0}, Job{"mpi", 4, 0},
                                         Job{"mpi", 8, 0}, Job{"mpi", 2, 1}, Job{"mpi", 4, 2}, Job{"gloo", 1, 0},
                                         Job{"gloo", 2, 0}, Job{"gloo", 3, 0}, Job{"gloo", 4, 0}, Job{"gloo", 2, 1},
                                         Job{"gloo", 4, 2}),
                         [](const auto& each) {
                           const int per_node = std::get<2>(each.param);
                           return str(std::get<0>(each.param), std::get<1>(each.param),
                                      per_node ? str("_nodes_of_", per_node) : "");
                         });

// The same on a device for each process, whose tensors NCCL exchanges. Virtual ranks share one device.
class DeviceProcesses : public lmx_test::DeviceTest, public testing::WithParamInterface<int> {};

TEST_P(DeviceProcesses, ConformAndEqualVirtualRanksInEveryBit) {
  if (const std::string why = lmx_test::why_no_job("gloo"); !why.empty()) GTEST_SKIP() << why;
  const int ranks = GetParam();
  lmx_test::Job job({"env", "LMX_NCCL_LIBRARY=" + lmx_test::emulated_nccl(), str("LMX_EMULATED_DEVICES=", ranks),
                     rank_program(), "nccl", std::to_string(ranks), "0", "cuda"});
  const uint64_t digest = digest_of_virtual_ranks(ranks, 0, {.kind = Device::Kind::cuda});
  EXPECT_EQ(job.wait(580), 0);
  EXPECT_EQ(job.err(), "");
  EXPECT_EQ(job.out(), str("digest ", digest, "\n"));
}
INSTANTIATE_TEST_SUITE_P(All, DeviceProcesses, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace lmx::sync_test
