// lmx run with comm=nccl, on emulated devices of several processes and the emulated NCCL.
#include <gmock/gmock.h>

#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

class NcclRun : public RunTest {
 protected:
  void SetUp() override {
    if (!fs::exists(kDevice)) GTEST_SKIP() << "this build has no emulated device";
    const Outcome probe = run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"});
    if (probe.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << "this build has no Gloo";
  }
  Outcome run_on_devices(const std::string& dir, const Words& more, const Variables& variables = {}) const {
    Words words{"device=cuda", "precision=fp16", "loss_scale.init=1e9", "train.eval_every=10"};
    words.insert(words.end(), more.begin(), more.end());
    Variables all = environment();
    all["LMX_CUDA_LIBRARY"] = kDevice;
    all["LMX_NCCL_LIBRARY"] = LMX_BINARY_DIR "/lib/libnccl_emulated.so";
    all["LMX_EMULATED_DEVICES"] = "2";
    for (const auto& [name, value] : variables) all[name] = value;
    return run_process(command(dir, words), all);
  }
  void train(const std::string& dir, const Words& more) const {
    const Outcome o = run_on_devices(dir, more);
    EXPECT_EQ(o.code, 0) << dir << ": " << o.err;
  }
  void expect_documented(const Outcome& o) const {
    EXPECT_EQ(o.code, 2);
    const size_t begin = o.err.find("error: ");
    ASSERT_NE(begin, std::string::npos) << o.err;
    EXPECT_NE(read_file(LMX_SOURCE_DIR "/docs/errors.md").find("\n" + o.err.substr(begin)), std::string::npos)
        << o.err << "is not in docs/errors.md";
  }

  static constexpr const char* kDevice = LMX_BINARY_DIR "/lib/liblmx_cuda_emulated.so";
};

// Updates with overflowing gradients are left out, and the run is resumed, also with another group of the same size.
TEST_F(NcclRun, TrainsAndResumesInTheBitsOfVirtualRanks) {
  const Words nccl{"comm={name: nccl, ranks: 2}"}, threads{"comm={name: virtual, ranks: 2}"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const std::string strategy : {"unique", "one_bit"}) {
    SCOPED_TRACE(strategy);
    const Words steps{"train.steps=20", "sync.rest.params=.*", "sync.rest.strategy=" + strategy};
    train("threads", with(steps, threads));
    train("nccl", with(steps, nccl));
    train("cut", with(with(steps, nccl), {"--until", "10"}));
    train("cut", with(with(steps, nccl), {"--resume", "auto"}));
    train("mixed", with(with(steps, nccl), {"--until", "10"}));
    train("mixed", with(with(steps, threads), {"--resume", "auto"}));
    ASSERT_FALSE(model("threads", 20).empty());
    for (const char* dir : {"nccl", "cut", "mixed"}) {
      EXPECT_EQ(model(dir, 20), model("threads", 20)) << dir;
      EXPECT_EQ(metrics(dir), metrics("threads")) << dir;
    }
    for (const char* dir : {"threads", "nccl", "cut", "mixed"}) fs::remove_all(path(dir));
  }
}

TEST_F(NcclRun, SaysThatNcclConnectsTheGpus) {
  const Outcome o = run_on_devices("a", {"comm={name: nccl, ranks: 2}", "train.steps=2"});
  EXPECT_THAT(o.err, Names("device cuda:0", "2 processes (Gloo, started by lmx), NCCL between GPUs"));
}

TEST_F(NcclRun, RefusalsAreDocumented) {
  const Words two{"comm={name: nccl, ranks: 2}"};
  expect_documented(run_on_devices("a", two, {{"LMX_NCCL_LIBRARY", "libnccl.so.0"}}));
  expect_documented(run_on_devices("a", two, {{"LMX_EMULATED_DEVICES", "1"}}));
}

}  // namespace
}  // namespace lmx_test
