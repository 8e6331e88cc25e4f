// The include order between the layers: a file may include only what stands left of its own layer in
//   base < config < tensor < backend < autograd < ops < nn < {optim, schedule, comm, data} < interface < plugin < train
#include <gtest/gtest.h>

#include <map>

#include "source_files.h"

namespace lmx_style {
namespace {

// Layers of one rank do not include each other.
const std::map<std::string, int> kRank{
    {"base", 0},     {"config", 1}, {"tensor", 2},    {"backend", 3},  {"cuda", 4},
    {"autograd", 5}, {"ops", 6},    {"nn", 7},        {"schedule", 8}, {"comm", 8},
    {"data", 8},     {"optim", 8},  {"interface", 9}, {"plugin", 10},  {"train", 11},
};

// Which layer each public header belongs to. A new header has to be put here, which is the moment to think about it.
const std::map<std::string, std::string> kHeaderLayer{
    {"api.h", "base"},
    {"error.h", "base"},
    {"log.h", "base"},
    {"file_lock.h", "base"},
    {"last_words.h", "base"},
    {"mistakes.h", "config"},
    {"clock.h", "base"},
    {"trace.h", "base"},
    {"random.h", "base"},
    {"terminal.h", "base"},
    {"math.h", "base"},
    {"param_pattern.h", "config"},
    {"sweep.h", "config"},
    {"recipe_info.h", "train"},
    {"config.h", "config"},
    {"dtype.h", "tensor"},
    {"memory.h", "tensor"},
    {"tensor.h", "tensor"},
    {"context.h", "tensor"},
    {"kernels.h", "backend"},
    {"matmul.h", "backend"},
    {"cuda.h", "backend"},
    {"parallel.h", "base"},
    {"autograd.h", "autograd"},
    {"ops.h", "ops"},
    {"array_ops.h", "ops"},
    {"attention.h", "ops"},
    {"loss_terms.h", "ops"},
    {"parameters.h", "nn"},
    {"optim.h", "optim"},
    {"schedule.h", "schedule"},
    {"comm.h", "comm"},
    {"codec.h", "comm"},
    {"launch.h", "comm"},
    {"step_plan.h", "nn"},
    {"data.h", "data"},
    {"corpora.h", "data"},
    {"zipf.h", "data"},
    {"survey.h", "data"},
    {"loss.h", "nn"},
    {"model.h", "interface"},
    {"model_extensions.h", "interface"},
    {"sync.h", "interface"},
    {"batcher.h", "data"},
    {"row_sync.h", "comm"},
    {"sum_strategy.h", "interface"},
    {"parallel_text.h", "data"},
    {"param_server.h", "interface"},
    {"plugin.h", "plugin"},
    {"crash.h", "plugin"},
    {"gradcheck.h", "ops"},
    {"checkpoint.h", "train"},
    {"train.h", "train"},
    {"row_sampling.h", "nn"},
    {"bleu.h", "data"},
    {"translation_scores.h", "data"},
    {"translate.h", "train"},
    {"export.h", "train"},
    {"fetch.h", "data"},
    {"rows.h", "ops"},
    {"batcher_bench.h", "train"},
    {"transfer.h", "train"},
    {"pair_batches.h", "data"},
    {"sequence.h", "ops"},
    {"lstm_cell.h", "ops"},
    {"lstm_cell.cuh", "ops"},
    {"cuda_launch.cuh", "backend"},
    {"recurrent.h", "interface"},
};

struct Exception {
  std::string file, include, reason;
};
const std::vector<Exception> kExceptions{
    {"core/include/lmx/loss.h", "lmx/data.h", "the unigram sampler draws from the vocabulary's counts"},
};

bool excepted(const std::string& file, const std::string& include) {
  return std::any_of(kExceptions.begin(), kExceptions.end(),
                     [&](const Exception& e) { return e.file == file && e.include == include; });
}

std::string layer_of(const std::string& path) {
  const std::string header = "core/include/lmx/";
  if (path.starts_with(header)) {
    const auto found = kHeaderLayer.find(path.substr(header.size()));
    return found == kHeaderLayer.end() ? "" : found->second;
  }
  const std::string folder = path.substr(5, path.find('/', 5) - 5);  // after "core/"
  return kRank.contains(folder) ? folder : "";
}

// "" when `file` may include `name`, else why not.
std::string problem(const SourceFile& file, const std::string& name) {
  const std::string own = layer_of(file.path);
  const std::string path = name.starts_with("lmx/") ? "core/include/" + name : "core/" + name;
  // A header that lies beside its source is included by its bare name.
  if (name.find('/') == std::string::npos) return "";
  const std::string other = layer_of(path);
  if (other.empty()) return "'" + name + "' belongs to no layer (tests/style/layers_test.cc lists them)";
  if (own == other) return "";
  if (kRank.at(other) < kRank.at(own)) return "";
  return "layer " + own + " may not include '" + name + "' of layer " + other;
}

TEST(Layers, EveryPublicHeaderHasALayer) {
  std::map<std::string, bool> seen;
  for (const SourceFile& file : source_files({"core/include/lmx"}, kCode)) {
    const std::string name = fs::path(file.path).filename().string();
    seen[name] = true;
    EXPECT_TRUE(kHeaderLayer.contains(name)) << file.path << ": add it to the table in tests/style/layers_test.cc";
  }
  for (const auto& [name, layer] : kHeaderLayer)
    EXPECT_TRUE(seen.contains(name)) << name << " is in the table, but gone";
}

TEST(Layers, IncludesPointLeft) {
  const std::vector<SourceFile> files = source_files({"core"}, kCode);
  EXPECT_GT(files.size(), 20u);
  for (const SourceFile& file : files) {
    if (layer_of(file.path).empty()) {
      ADD_FAILURE() << file.path << ": its folder is no layer";
      continue;
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string name = included(file.lines[i], '"', '"');
      if (name.empty() || excepted(file.path, name)) continue;
      EXPECT_EQ(problem(file, name), "") << file.path << ":" << i + 1;
    }
  }
}

TEST(Layers, RulesCatchWhatTheyShould) {
  const auto check = [](const char* path, const char* name) { return problem({path, {}}, name); };
  EXPECT_EQ(check("core/ops/softmax.cc", "lmx/tensor.h"), "");
  EXPECT_EQ(check("core/ops/softmax.cc", "ops/common.h"), "");
  EXPECT_NE(check("core/ops/softmax.cc", "lmx/parameters.h"), "");
  EXPECT_NE(check("core/include/lmx/tensor.h", "lmx/ops.h"), "");
  EXPECT_NE(check("core/optim/adam.cc", "lmx/schedule.h"), "");
  EXPECT_NE(check("core/base/log.cc", "config/messages.h"), "");
  EXPECT_NE(check("core/base/log.cc", "lmx/unheard_of.h"), "");
}

// A plugin or tool that needs an internal header would not build outside this tree.
TEST(Layers, PluginsAndToolsSeeThePublicHeadersOnly) {
  for (const SourceFile& file : source_files({"plugins", "tools"}, kCode)) {
    const fs::path folder = (fs::path(LMX_SOURCE_DIR) / file.path).parent_path();
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string name = included(file.lines[i], '"', '"');
      if (name.empty() || name.starts_with("lmx/")) continue;
      EXPECT_TRUE(fs::exists(folder / name)) << file.path << ":" << i + 1 << ": '" << name << "' is not beside it";
    }
  }
}

TEST(Layers, PublicHeadersIncludeTheStandardLibraryOnly) {
  // The compiler's intrinsics are no library.
  const std::vector<std::string> allowed{"immintrin.h"};
  for (const SourceFile& file : source_files({"core/include/lmx"}, kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string name = included(file.lines[i], '<', '>');
      if (name.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
      EXPECT_EQ(name.find_first_of("/."), std::string::npos) << file.path << ":" << i + 1 << ": <" << name << ">";
    }
  }
}

}  // namespace
}  // namespace lmx_style
