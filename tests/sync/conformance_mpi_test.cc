// The conformance suite between processes. Their results must be bit-equal to those of virtual ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "comm/job.h"
#include "comm/mpi_here.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"

namespace lmx::sync_test {
namespace {

uint64_t digest_of_virtual_ranks(int ranks) {
  uint64_t digest = 0;
  make_group(ranks)->run([&](Communicator& comm) {
    const uint64_t own = conformance(comm).digest;
    if (comm.rank() == 0) digest = own;
  });
  return digest;
}

class Processes : public testing::TestWithParam<int> {};

TEST_P(Processes, ConformAndEqualVirtualRanksInEveryBit) {
  if (const std::string why = lmx_test::why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  lmx_test::Job job({LMX_CONFORMANCE_RANK, std::to_string(GetParam())});
  const uint64_t digest = digest_of_virtual_ranks(GetParam());
  EXPECT_EQ(job.wait(240), 0);
  EXPECT_EQ(job.err(), "");
  EXPECT_EQ(job.out(), str("digest ", digest, "\n"));
}
INSTANTIATE_TEST_SUITE_P(All, Processes, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

}  // namespace
}  // namespace lmx::sync_test
