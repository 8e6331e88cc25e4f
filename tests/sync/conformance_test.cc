// The conformance suite with virtual ranks; conformance_mpi_test.cc runs it with processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"

namespace lmx::sync_test {
namespace {

struct Named {
  Case c;
  int ranks, per_node = 0;
};
std::string text(const Case& c) {
  std::string out = c.strategy + "_";
  for (const char ch : c.config) {
    if (isalnum(static_cast<unsigned char>(ch))) out += ch;
  }
  return out;
}

class Strategies : public testing::TestWithParam<Named> {};

TEST_P(Strategies, Conform) {
  std::mutex mutex;
  std::vector<std::string> failures;
  make_group(GetParam().ranks, GetParam().per_node)->run([&](Communicator& comm) {
    uint64_t digest = 0;
    const std::vector<std::string> own = check_case(comm, GetParam().c, true, digest);
    const std::lock_guard lock(mutex);
    failures.insert(failures.end(), own.begin(), own.end());
  });
  EXPECT_THAT(failures, testing::IsEmpty());
}

std::vector<Named> every_case() {
  std::vector<Named> all;
  for (const Case& c : conformance_cases()) {
    for (const int ranks : {1, 2, 3, 4, 8}) all.push_back({c, ranks});
    all.insert(all.end(), {{c, 2, 1}, {c, 4, 2}, {c, 6, 2}});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Strategies, testing::ValuesIn(every_case()), [](const auto& one) {
  const std::string nodes = one.param.per_node ? str("_nodes_of_", one.param.per_node) : "";
  return str(text(one.param.c), "_", one.param.ranks, nodes);
});

// The same on a device, where ranks pass their tensors by reference. Coalesced rows have the bits of the CPU. Rows that
// are added to a dense gradient may be rounded in another way, because a device first adds the repeated rows of a
// piece; so may the means of a one-bit codec.
class DeviceStrategies : public lmx_test::DeviceTest, public testing::WithParamInterface<Named> {};

TEST_P(DeviceStrategies, ConformAndEqualTheCpu) {
  const Case& c = GetParam().c;
  const bool equal = !c.one_bit() && c.strategy != "allgather_dense";
  std::mutex mutex;
  std::vector<std::string> failures;
  make_group(GetParam().ranks, GetParam().per_node)->run([&](Communicator& comm) {
    uint64_t on_device = 0, on_cpu = 0;
    std::vector<std::string> own = check_case(comm, c, false, on_device, {.kind = Device::Kind::cuda});
    if (equal) static_cast<void>(check_case(comm, c, false, on_cpu));
    if (equal && on_device != on_cpu) own.push_back("other bits than on the CPU");
    const std::lock_guard lock(mutex);
    failures.insert(failures.end(), own.begin(), own.end());
  });
  EXPECT_THAT(failures, testing::IsEmpty());
}

std::vector<Named> device_cases() {
  std::vector<Named> all;
  for (const Case& c : conformance_cases()) c.has("levels") ? all.push_back({c, 4, 2}) : all.push_back({c, 3});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, DeviceStrategies, testing::ValuesIn(device_cases()),
                         [](const auto& one) { return text(one.param.c); });

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, UniqueEqualsAllgatherInEveryBit) {
  std::mutex mutex;
  std::vector<std::string> failures;
  make_group(GetParam())->run([&](Communicator& comm) {
    const std::vector<std::string> own = check_equal_bits(comm);
    const std::lock_guard lock(mutex);
    failures.insert(failures.end(), own.begin(), own.end());
  });
  EXPECT_THAT(failures, testing::IsEmpty());
}
INSTANTIATE_TEST_SUITE_P(All, Ranks, testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace lmx::sync_test
