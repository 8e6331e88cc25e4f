// Every shipped recipe at its desk scale trains on the emulated device with a small model, short sequences and few
// ranks: with the losses of the CPU, and with the same bits when it is resumed. A model with loops over time has the
// same bits also without CUDA graphs.
#include <cctype>
#include <cmath>
#include <set>

#include "backend/cuda.h"
#include "full_size/shipped.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "process/run_fixture.h"
#include "process/text_fixtures.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 6, kSaved = 2;  // a checkpoint every kSaved steps

struct Desk {
  std::string recipe, yaml;
  bool loops;  // its model repeats launches in each time step, which CUDA graphs replay
};

// The recipe with the option `desk` of its group, where it has one.
Node at_desk(const std::string& recipe) {
  for (const std::string group : {"scale", "patwary/scale", "puri/scale", "xiao/scale"}) try {
      return composed(recipe, {group + "=desk"});
    } catch (const UserError&) {  // the recipe has no such group
    }
  return composed(recipe, {});
}

// What a kernel computes stays: losses, optimizers, schedules, dropout, strategies, codecs. Their sizes do not.
Node smallest(Node tree) {
  const int64_t given = tree.at_path("comm.ranks") ? integer_at(tree, "comm.ranks") : 1;
  const int64_t ranks = std::clamp<int64_t>(given, 1, 4);
  shrink_model(tree, 12, 2);
  tree.find("batcher")->erase("shards");
  if (tree.at_path("loss.samples")) set(tree, "loss", "samples", "16");
  if (tree.at_path("batcher.max_tokens")) {
    set(tree, "batcher", "max_tokens", "60");
    const int64_t turns = integer_at(tree, "batch.global") / std::max<int64_t>(1, given);
    tree.set("batch", parse_yaml(str("{global: ", ranks * std::min<int64_t>(turns, 2), "}"), "change"));
    tree.set("data", parse_yaml("{name: parallel, source_files: [SOURCE], target_files: [TARGET], source_language: en, "
                                "target_language: de, vocab_size: 80, valid_fraction: 0.1, test_fraction: 0}",
                                "change"));
  } else {
    set(tree, "batcher", "sequence_length", "6");
    tree.set("batch", parse_yaml(str("{global: ", 2 * ranks, "}"), "change"));
    tree.set("data",
             parse_yaml("{name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 200, test_tokens: 0, "
                        "branching: 8, classes: 4}",
                        "change"));
  }
  if (tree.at_path("schedule.warmup")) set(tree, "schedule", "warmup", "3");
  if (tree.at_path("schedule.steps")) set(tree, "schedule", "steps", "0");
  tree.set("comm", parse_yaml(ranks > 1 ? str("{name: virtual, ranks: ", ranks, "}") : "{name: self}", "change"));
  const std::string ema = text_at(tree, "train.ema");
  tree.set("train",
           parse_yaml(str("{steps: ", kSteps, ", log_every: 1, eval_every: 6", ema.empty() ? "" : ", ema: ", ema, "}"),
                      "change"));
  tree.set("checkpoint", parse_yaml(str("{every: ", kSaved, ", keep_last: 5, keep_best: false}"), "change"));
  tree.set("run", parse_yaml("{tensorboard: false}", "change"));
  tree.set("threads", parse_yaml("1", "change"));
  tree.set("precision", parse_yaml("fp32", "change"));
  tree.set("device", parse_yaml("cpu", "change"));
  for (const char* part : {"loss_scale", "lr_rule", "stop", "sweep", "provenance"}) tree.erase(part);
  return tree;
}

// The recipes whose small forms differ.
const std::vector<Desk>& desks() {
  static const std::vector<Desk> all = [] {
    Registry::instance().add_default_directories();
    std::vector<Desk> found;
    std::set<std::string> known;
    for (const std::string& recipe : shipped()) {
      const Node tree = smallest(at_desk(recipe));
      const std::string yaml = to_yaml(tree);
      if (known.insert(yaml).second) found.push_back({recipe, yaml, text_at(tree, "model.name") != "transformer"});
    }
    return found;
  }();
  return all;
}

class DeviceDesk : public lmx_test::RunTest, public testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    std::string yaml = desks()[GetParam()].yaml;
    yaml = lmx_test::replaced(yaml, "SOURCE", path("source.txt"));
    write("desk.yaml", lmx_test::replaced(yaml, "TARGET", path("target.txt")));
    lmx_test::write_pairs(folder_);
  }
  // The training losses of `lmx run desk.yaml` with these words and variables.
  std::vector<double> train(const std::string& dir, const std::vector<std::string>& more,
                            const std::map<std::string, std::string>& variables = {}) const {
    std::vector<std::string> words{lmx_test::build_path("/bin/lmx"), "run", path("desk.yaml")};
    words.insert(words.end(), more.begin(), more.end());
    auto all = environment();
    all.insert(variables.begin(), variables.end());
    const lmx_test::Outcome o = lmx_test::run_process(words, all);
    if (o.code != 0) throw std::runtime_error(o.err + "\n" + desks()[GetParam()].yaml);
    return series(dir, "train", "nll_nat");
  }
};

TEST_P(DeviceDesk, TrainsAsOnTheCpuAndResumes) {
  const auto cpu = train("cpu", {"run.dir=" + path("cpu")});
  const auto device = train("device", {"run.dir=" + path("device"), "device=cuda"});
  ASSERT_EQ(cpu.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i) ASSERT_NEAR(device[i] / cpu[i], 1, 1e-4) << "record " << i + 1;
  const std::string end = model("device", kSteps);
  ASSERT_FALSE(end.empty());

  std::string last = "device";
  if (desks()[GetParam()].loops) {
    last = "launched";
    EXPECT_EQ(train(last, {"run.dir=" + path(last), "device=cuda"}, {{"LMX_CUDA_GRAPHS", "0"}}), device);
    EXPECT_EQ(model(last, kSteps), end) << "without graphs";
  }

  for (const auto& entry : fs::directory_iterator(folder_ / last / "checkpoints"))  // as if it had been killed
    if (entry.path().filename() != str("step-", kSaved)) fs::remove_all(entry);
  EXPECT_EQ(train(last, {"--resume", path(last), "device=cuda"}), device);
  EXPECT_EQ(model(last, kSteps), end) << "resumed";
}

std::string name_of(const testing::TestParamInfo<size_t>& info) {
  return desks()[info.param].recipe;
}

INSTANTIATE_TEST_SUITE_P(Shipped, DeviceDesk, testing::Range<size_t>(0, desks().size()), name_of);

}  // namespace
}  // namespace lmx::app
