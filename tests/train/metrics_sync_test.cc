// Records are on disk before the checkpoint that depends on them. Every fsync() of this program and of the core calls
// the function below.
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>

#include "app/run/run.h"
#include "train/run_folder.h"

namespace {

std::mutex g_mutex;
std::vector<std::string>* g_synced = nullptr;

}  // namespace

extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  {
    const std::lock_guard lock(g_mutex);
    std::error_code error;
    if (g_synced)
      g_synced->push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error).string());
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace lmx::train {
namespace {

class MetricsSync : public RunFolderTest {};

TEST_F(MetricsSync, RecordsComeBeforeTheCheckpoint) {
  const std::string recipe = R"(
data: {name: synthetic, vocab_size: 40, train_tokens: 2000, valid_tokens: 100, branching: 4, classes: 4}
batcher: {name: tbptt, sequence_length: 5}
batch: {global: 2}
model: {name: lstm, embedding: 4, cells: 4}
optimizer: {name: sgd, lr: 0.1}
train: {steps: 4, log_every: 1, eval_every: 4}
checkpoint: {every: 2, keep_last: 9}
threads: 1
)";
  std::vector<std::string> synced;
  {
    const std::lock_guard lock(g_mutex);
    g_synced = &synced;
  }
  run_recipe(parse_yaml(recipe + "run: {dir: " + path("r") + "}\n", "r.yaml"), "r", {});
  {
    const std::lock_guard lock(g_mutex);
    g_synced = nullptr;
  }
  const auto is_metrics = [](const std::string& file) { return file.ends_with("/metrics.jsonl"); };
  const auto is_model = [](const std::string& file) {
    return file.find("/model.safetensors.tmp-") != std::string::npos;  // it gets its name after that
  };
  int metrics = 0, models = 0;
  for (const std::string& file : synced) {
    metrics += is_metrics(file);
    models += is_model(file);
    EXPECT_GE(metrics, models) << testing::PrintToString(synced);
  }
  EXPECT_EQ(models, 2) << testing::PrintToString(synced);
}

}  // namespace
}  // namespace lmx::train
