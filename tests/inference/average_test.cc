// lmx average, without its command line.
#include <gmock/gmock.h>

#include "app/inference/average.h"
#include "app/translation/translate.h"
#include "data/full_disk.h"
#include "lmx/error.h"
#include "names.h"
#include "runfiles/checkpoint.h"
#include "train/fixture.h"

namespace lmx::train {
namespace {

using lmx_test::Names;
using testing::HasSubstr;

class Average : public FolderTest {
 protected:
  // Makes a run with checkpoints 10, 20, ..., each with one parameter w = values[i], and perplexities if they are
  // given.
  void make_run(const std::vector<std::vector<float>>& values, const std::vector<double>& ppl = {}) {
    std::string metrics;
    for (size_t i = 0; i < values.size(); ++i) {
      TrainState state;
      state.model.emplace("w", floats({static_cast<int64_t>(values[i].size())}, values[i]));
      save_checkpoint(path("run"), static_cast<int64_t>(i + 1) * 10, state);
      if (i < ppl.size()) metrics += str("{\"step\":", (i + 1) * 10, ",\"split\":\"valid\",\"ppl\":", ppl[i], "}\n");
    }
    write_all(path("run/metrics.jsonl"), metrics);
  }
  std::vector<float> average(const AverageOptions& options) {
    paths_ = average_checkpoints(options, path("mean.safetensors"));
    const StateDict mean = load_safetensors(path("mean.safetensors"), Allocator::cpu());
    const auto w = mean.at("w").values<float>();
    return {w.begin(), w.end()};
  }
  std::string refused(const AverageOptions& options) {
    return message<UserError>([&] { average_checkpoints(options, path("mean.safetensors")); });
  }
  std::string step(int n) const { return str(path("run"), "/checkpoints/step-", n); }
  std::vector<std::string> paths_;
};

TEST_F(Average, OfNamedCheckpointsLastAndBest) {
  make_run({{1, 10}, {2, 20}, {6, 60}}, {5, 9, 4});
  EXPECT_EQ(average({{step(10), step(20)}, "", 0, 0}), (std::vector<float>{1.5, 15}));
  EXPECT_EQ(average({{}, path("run"), 2, 0}), (std::vector<float>{4, 40}));
  EXPECT_EQ(average({{}, path("run"), 0, 2}), (std::vector<float>{3.5, 35}));
  EXPECT_EQ(paths_, (std::vector<std::string>{step(30), step(10)}));
  std::filesystem::rename(path("mean.safetensors"), path("first.safetensors"));
  EXPECT_EQ(average({{path("first.safetensors"), step(10)}, "", 0, 0}), (std::vector<float>{2.25, 22.5}));
}

// OUT was forgotten, so that the first checkpoint takes its place.
TEST_F(Average, AnOutputThatIsAnInputIsRefused) {
  make_run({{1, 10}, {2, 20}});
  average({{}, path("run"), 2, 0});
  const std::string before = read_all(path("mean.safetensors"));
  std::filesystem::create_symlink("mean.safetensors", path("link.safetensors"));
  for (const char* name : {"mean.safetensors", "link.safetensors"})
    EXPECT_THAT(refused({{path(name), step(10)}, "", 0, 0}), HasSubstr("is one of the checkpoints")) << name;
  EXPECT_EQ(read_all(path("mean.safetensors")), before);
}

TEST_F(Average, IsSummedInDouble) {
  // In float, 2^24 + 1 + 1 would remain 2^24.
  make_run({{16777216}, {1}, {1}});
  EXPECT_EQ(average({{}, path("run"), 3, 0}), (std::vector<float>{static_cast<float>(16777218.0 / 3)}));
  make_run({{0.1f}, {0.1f}, {0.1f}});
  EXPECT_EQ(average({{}, path("run"), 3, 0}), (std::vector<float>{0.1f}));
}

TEST_F(Average, AFullDiskLeavesWhatWasThere) {
  make_run({{1, 10}, {2, 20}});
  write_all(path("mean.safetensors"), "the last one");
  EXPECT_THAT(lmx_test::error_on_full_disk(16,
                                           [&] {
                                             average_checkpoints({{}, path("run"), 2, 0}, path("mean.safetensors"));
                                           }),
              HasSubstr("mean.safetensors"));
  EXPECT_EQ(read_all(path("mean.safetensors")), "the last one");
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("tmp"), std::string::npos) << entry.path();
}

TEST_F(Average, RefusesWhatHasNoAverage) {
  make_run({{1, 2}, {1, 2, 3}}, {5});
  EXPECT_THAT(refused({{step(10), step(20)}, "", 0, 0}), Names("parameter w", "(2) f32", "(3) f32"));
  EXPECT_THAT(refused({{}, path("run"), 3, 0}), Names("3 checkpoints", "keeps 2", "keep_last=3"));
  EXPECT_THAT(refused({{}, path("run"), 0, 2}), Names("2 checkpoints", "keeps 1", "validated"));
  EXPECT_THAT(refused({{}, path("run"), 0, 0}), Names("--last N", "--best N"));
  EXPECT_THAT(refused({{step(10)}, path("run"), 1, 0}), Names("--last N", "--best N"));
  EXPECT_THAT(refused({{}, path("run"), -1, 0}), Names("-1"));
  EXPECT_THAT(refused({{}, path("nowhere"), 1, 0}), Names(path("nowhere")));
  EXPECT_THAT(refused({{path("missing.safetensors")}, "", 0, 0}), Names("missing.safetensors"));
  save_safetensors(path("other.safetensors"), {{"v", floats({2}, {1, 2})}});
  EXPECT_THAT(refused({{step(10), path("other.safetensors")}, "", 0, 0}), Names("no parameter w"));
  EXPECT_FALSE(std::filesystem::exists(path("mean.safetensors")));
}

}  // namespace
}  // namespace lmx::train
