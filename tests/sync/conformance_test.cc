// The conformance suite with virtual ranks, and between processes.
#include <mutex>
#include <tuple>
#include <utility>

#include "comm/codec/codecs.h"
#include "comm/process_jobs.h"
#include "device.h"
#include "process/emulated.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"
#include "test.h"

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

// A strategy that accepts a codec is checked with it. Those of a parameter server are in param_server_test.cc.
TEST(ConformanceCases, HaveEveryStrategyWithEveryCodecThatItAccepts) {
  make_group(1);  // finds the plugins
  const auto codec_of = [](const PluginInfo& plugin, const Node& config) {
    const Node full = plugin.descriptor->full_config(config, "rule");
    const Node* kind = full.at_path("codec.kind");
    return kind ? kind->text : std::string();
  };
  std::set<std::pair<std::string, std::string>> checked;
  for (const Case& c : conformance_cases()) {
    const Subject subject = c.subject();
    checked.emplace(c.strategy, codec_of(subject.plugin, subject.config));
  }
  std::vector<std::string> codecs = comm::built_in_codecs(), missing;
  for (const PluginInfo& plugin : Registry::instance().list())
    if (plugin.kind == "codec") codecs.push_back(plugin.name);
  for (const PluginInfo& listed : Registry::instance().list()) {
    if (listed.kind != "sync" || listed.name == "param_server") continue;
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, listed.name);
    const bool has_codec = !codec_of(plugin, Node::map()).empty();
    for (const std::string& codec : has_codec ? codecs : std::vector<std::string>{""}) {
      const std::string yaml = has_codec ? str("codec: {kind: ", codec, "}") : "{}";
      if (lmx_test::user_error([&] { plugin.descriptor->full_config(parse_yaml(yaml, "rule"), "rule"); }) != "no error")
        continue;
      if (!checked.contains({listed.name, codec})) missing.push_back(str(listed.name, ' ', codec));
    }
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}

// The same on a device, where ranks pass their tensors by reference. Coalesced rows have the bits of the CPU. Rows that
// are added to a dense gradient may be rounded in another way, because a device first adds the repeated rows of a
// piece; so may the means of a one-bit codec and of sparse_loco's levels, the norms of qsgd, the products of power_sgd
// and demo, the outer steps of diloco and noloco, the moments of one_bit_adam, and the update of zero.
class DeviceStrategies : public lmx_test::DeviceTest, public testing::WithParamInterface<Named> {};

TEST_P(DeviceStrategies, ConformAndEqualTheCpu) {
  const Case& c = GetParam().c;
  const std::set<std::string> other{"allgather_dense", "qsgd",   "power_sgd",    "demo", "diloco",
                                    "sparse_loco",     "noloco", "one_bit_adam", "zero"};
  const bool equal = !c.one_bit() && !other.contains(c.strategy);
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

// The conformance suite between processes. Their results must be bit-equal to those of virtual ranks.

// `every`: of the cases, every so many are checked.
uint64_t digest_of_virtual_ranks(int ranks, int per_node, Device device = {}, size_t every = 1) {
  uint64_t digest = 0;
  make_group(ranks, per_node)->run([&](Communicator& comm) {
    const uint64_t own = conformance(comm, device, every).digest;
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
// The second number: of the cases, every so many are checked. DeviceStrategies has them all, on one device.
class DeviceProcesses : public lmx_test::DeviceTest, public testing::WithParamInterface<std::pair<int, size_t>> {};

TEST_P(DeviceProcesses, ConformAndEqualVirtualRanksInEveryBit) {
  if (const std::string why = lmx_test::why_no_job("gloo"); !why.empty()) GTEST_SKIP() << why;
  const auto [ranks, every] = GetParam();
  lmx_test::Job job({"env", "LMX_NCCL_LIBRARY=" + lmx_test::emulated_nccl(), str("LMX_EMULATED_DEVICES=", ranks),
                     rank_program(), "nccl", std::to_string(ranks), "0", "cuda", str(every)});
  const uint64_t digest = digest_of_virtual_ranks(ranks, 0, {.kind = Device::Kind::cuda}, every);
  EXPECT_EQ(job.wait(580), 0);
  EXPECT_EQ(job.err(), "");
  EXPECT_EQ(job.out(), str("digest ", digest, "\n"));
}
using RanksAndEvery = std::pair<int, size_t>;
INSTANTIATE_TEST_SUITE_P(All, DeviceProcesses,
                         testing::Values(RanksAndEvery{1, 1}, RanksAndEvery{2, 1}, RanksAndEvery{3, 1},
                                         RanksAndEvery{4, 1}, RanksAndEvery{2, 3}));

}  // namespace
}  // namespace lmx::sync_test
