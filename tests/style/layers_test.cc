// Rooms and the order of includes between them. A file may include headers of rooms that stand left of its own:
//   core   base < config < tensor < backend < autograd < ops < nn < {optim, schedule, comm, data} < model < sync <
//   plugin
//          < recipe < runfiles < train
//   tools  {compose, text, records, print, memory} < {scores, corpora, jobs, runs} < prepare < pairs < {datasets,
//   translation}
//          < {inference, huggingface} < {run, restart, probe, export, bench, new} < report < sweep < plan <
//          {calibration, experiment} < conformance < cli
// The application in tools/ may include every header of the core, and the core none of the application.
#include <map>

#include "source_files.h"
#include "test.h"

namespace lmx_style {
namespace {

// Rooms of one rank do not include each other.
const std::map<std::string, int> kRank{
    {"base", 0},        {"config", 1},       {"tensor", 2},   {"backend", 3},   {"autograd", 4},  {"ops", 5},
    {"nn", 6},          {"optim", 7},        {"schedule", 7}, {"comm", 7},      {"data", 7},      {"model", 8},
    {"sync", 9},        {"plugin", 10},      {"recipe", 11},  {"runfiles", 12}, {"train", 13},    {"text", 20},
    {"compose", 20},    {"records", 20},     {"print", 20},   {"memory", 20},   {"scores", 21},   {"corpora", 21},
    {"jobs", 21},       {"runs", 21},        {"prepare", 22}, {"pairs", 23},    {"datasets", 24}, {"translation", 24},
    {"inference", 25},  {"huggingface", 25}, {"run", 26},     {"probe", 26},    {"export", 26},   {"bench", 26},
    {"new", 26},        {"restart", 26},     {"report", 27},  {"sweep", 28},    {"plan", 29},     {"calibration", 30},
    {"experiment", 30}, {"conformance", 31}, {"cli", 32},
};

// Which room each public header belongs to. A new header has to be put here, which is the moment to think about it.
const std::map<std::string, std::string> kHeaderRoom{
    {"api.h", "base"},
    {"array_ops.h", "ops"},
    {"autograd.h", "autograd"},
    {"batcher.h", "data"},
    {"codec.h", "comm"},
    {"comm.h", "comm"},
    {"config.h", "config"},
    {"context.h", "tensor"},
    {"cuda_launch.cuh", "backend"},
    {"data.h", "data"},
    {"decoding.h", "ops"},
    {"device_comm.h", "comm"},
    {"dtype.h", "tensor"},
    {"error.h", "base"},
    {"feedback_strategy.h", "sync"},
    {"replica_strategy.h", "sync"},
    {"shard_strategy.h", "sync"},
    {"gradcheck.h", "ops"},
    {"kernels.h", "backend"},
    {"launch.h", "comm"},
    {"log.h", "base"},
    {"loss.h", "nn"},
    {"lstm_cell.h", "ops"},
    {"math.h", "ops"},
    {"matmul.h", "backend"},
    {"metric.h", "recipe"},
    {"model.h", "model"},
    {"operand.h", "backend"},
    {"ops.h", "ops"},
    {"optim.h", "optim"},
    {"pair_batches.h", "data"},
    {"parallel.h", "base"},
    {"param_server.h", "sync"},
    {"parameters.h", "nn"},
    {"plugin.h", "plugin"},
    {"pointwise.cuh", "backend"},
    {"pointwise.h", "backend"},
    {"quads.cuh", "backend"},
    {"random.h", "base"},
    {"recompute.h", "autograd"},
    {"recurrent.h", "model"},
    {"row_sampling.h", "nn"},
    {"row_sync.h", "comm"},
    {"sum_strategy.h", "sync"},
    {"schedule.h", "schedule"},
    {"slot_optimizer.cuh", "optim"},
    {"slot_optimizer.h", "optim"},
    {"sync.h", "sync"},
    {"tensor.h", "tensor"},
    {"trace.h", "base"},
    {"vectors.h", "comm"},
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

// The room of a file by its path from the project's root; "" where it has none.
std::string room_of(const std::string& path) {
  const std::string header = "core/include/lmx/";
  if (path.starts_with(header)) {
    const auto found = kHeaderRoom.find(path.substr(header.size()));
    return found == kHeaderRoom.end() ? "" : found->second;
  }
  for (const std::string parent : {"tools/app/", "tools/", "core/"}) {
    if (!path.starts_with(parent)) continue;
    const std::string folder = path.substr(parent.size(), path.find('/', parent.size()) - parent.size());
    return kRank.contains(folder) ? folder : "";
  }
  return "";
}

// The path of an included file from the project's root; "" if no such file exists.
std::string target_of(const std::string& name) {
  for (const std::string root : {"core/include/", "core/", "tools/"})
    if (fs::exists(fs::path(lmx_test::source_path()) / (root + name))) return root + name;
  return "";
}

// "" when `file` may include `name`, else why not.
std::string problem(const SourceFile& file, const std::string& name) {
  const std::string own = room_of(file.path), target = target_of(name);
  if (target.empty()) return "there is no '" + name + "'";
  const std::string other = room_of(target);
  if (other.empty()) return "'" + name + "' belongs to no room (tests/style/layers_test.cc lists them)";
  if (own == other || kRank.at(other) < kRank.at(own)) return "";
  return "room " + own + " may not include '" + name + "' of room " + other;
}

bool has_room(const std::string& path) {
  return path.starts_with("core/") || path.starts_with("tools/app/") || path.starts_with("tools/cli/") ||
         path.starts_with("tools/conformance/");
}

// The files of rooms, without the templates that `lmx plugins new` writes.
std::vector<SourceFile> files_of_rooms() {
  std::vector<SourceFile> files = source_files({"core", "tools"}, kCode);
  std::erase_if(files, [](const SourceFile& file) {
    return !has_room(file.path) || file.path.find("/templates/") != std::string::npos;
  });
  return files;
}

TEST(Layers, EveryPublicHeaderHasARoom) {
  std::map<std::string, bool> seen;
  for (const SourceFile& file : source_files({"core/include/lmx"}, kCode)) {
    const std::string name = fs::path(file.path).filename().string();
    seen[name] = true;
    EXPECT_TRUE(kHeaderRoom.contains(name)) << file.path << ": add it to the table in tests/style/layers_test.cc";
  }
  for (const auto& [name, room] : kHeaderRoom) EXPECT_TRUE(seen.contains(name)) << name << " is in the table, but gone";
}

TEST(Layers, IncludesPointLeft) {
  size_t includes = 0;
  for (const SourceFile& file : files_of_rooms()) {
    if (room_of(file.path).empty()) {
      ADD_FAILURE() << file.path << ": its folder is no room";
      continue;
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string name = included(file.lines[i], '"', '"');
      if (name.empty() || excepted(file.path, name)) continue;
      ++includes;
      EXPECT_EQ(problem(file, name), "") << file.path << ":" << i + 1;
    }
  }
  EXPECT_GT(includes, 1000u);
}

// "" when a file of a room may open this namespace, else why not. The core is in `lmx`, the application in `lmx::app`.
// A further part is the name of a folder of the file's path, or of a header in its folder.
std::string namespace_problem(const std::string& path, const std::string& name) {
  const bool core = path.starts_with("core/");
  const std::string whole = core ? "lmx" : "lmx::app", parts = name.substr(std::min(whole.size(), name.size()));
  if (!name.starts_with(whole) || (!parts.empty() && !parts.starts_with("::")))
    return "'" + name + "' is not in " + whole;
  const fs::path folder = fs::path(path).parent_path();
  for (size_t at = 0; at < parts.size();) {
    const size_t end = std::min(parts.find("::", at + 2), parts.size());
    const std::string part = parts.substr(at + 2, end - at - 2);
    const bool folder_has_it = ("/" + folder.string() + "/").find("/" + part + "/") != std::string::npos;
    if (!folder_has_it && !fs::exists(lmx_test::source_path() / folder / (part + ".h")))
      return "'" + part + "' is neither a folder of the path nor a header beside the file";
    at = end;
  }
  return "";
}

TEST(Layers, NamespacesFollowRooms) {
  size_t namespaces = 0;
  for (const SourceFile& file : files_of_rooms()) {
    if (file.path.starts_with("core/include/")) continue;  // public headers have the namespaces that plugins see
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (!line.starts_with("namespace lmx") || !line.ends_with(" {")) continue;
      ++namespaces;
      EXPECT_EQ(namespace_problem(file.path, line.substr(10, line.find(' ', 10) - 10)), "")
          << file.path << ":" << i + 1;
    }
  }
  EXPECT_GT(namespaces, 500u);
  EXPECT_EQ(namespace_problem("core/ops/layers/linear.cc", "lmx::ops"), "");
  EXPECT_EQ(namespace_problem("tools/app/report/page.cc", "lmx::app::report"), "");
  EXPECT_NE(namespace_problem("core/runfiles/traffic.cc", "lmx::train"), "");
  EXPECT_NE(namespace_problem("tools/app/report/page.cc", "lmx"), "");
  EXPECT_NE(namespace_problem("tools/app/report/page.cc", "lmx::applied"), "");
  EXPECT_NE(namespace_problem("tools/app/report/page.cc", "lmx::app::sweep"), "");
}

TEST(Layers, RulesCatchWhatTheyShould) {
  const auto check = [](const char* path, const char* name) { return problem({path, {}}, name); };
  EXPECT_EQ(check("core/ops/losses/softmax.cc", "lmx/tensor.h"), "");
  EXPECT_EQ(check("core/ops/losses/softmax.cc", "ops/common.h"), "");
  EXPECT_EQ(check("tools/app/run/run.cc", "train/loop/trainer.h"), "");
  EXPECT_EQ(check("tools/cli/run_command.cc", "app/run/run.h"), "");
  EXPECT_NE(check("core/ops/losses/softmax.cc", "lmx/parameters.h"), "");
  EXPECT_NE(check("core/include/lmx/tensor.h", "lmx/ops.h"), "");
  EXPECT_NE(check("core/optim/adam.cc", "schedule/schedule.h"), "");
  EXPECT_NE(check("core/base/log.cc", "config/messages.h"), "");
  EXPECT_NE(check("core/base/log.cc", "lmx/unheard_of.h"), "");
  EXPECT_NE(check("core/train/session.cc", "app/prepare/open.h"), "") << "the core does not include the application";
  EXPECT_NE(check("tools/app/text/utf8.cc", "app/prepare/prepare.h"), "");
  EXPECT_NE(check("tools/app/run/run.cc", "cli/commands.h"), "");
}

// A plugin that needs an internal header would not build outside this tree. It may also include headers of a folder
// without plugin.toml, which the plugins of its kind share.
TEST(Layers, PluginsSeeThePublicHeadersOnly) {
  const auto is_shared = [](const fs::path& header) {
    return fs::exists(header) && !fs::exists(header.parent_path() / "plugin.toml");
  };
  for (const SourceFile& file : source_files({"plugins"}, kCode)) {
    const fs::path folder = (fs::path(lmx_test::source_path()) / file.path).parent_path();
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string name = included(file.lines[i], '"', '"');
      if (name.empty() || name.starts_with("lmx/")) continue;
      EXPECT_TRUE(fs::exists(folder / name) || is_shared(folder.parent_path() / name))
          << file.path << ":" << i + 1 << ": '" << name << "' is not beside it";
    }
  }
}

// What is declared for plugins is marked; tests and the application see every symbol of the core without a mark.
TEST(Layers, PublicHeadersAloneMarkTheirSymbols) {
  for (const SourceFile& file : source_files({"core", "tools"}, kCode)) {
    if (file.path.starts_with("core/include/")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_EQ(file.lines[i].find("LMX_API"), std::string::npos) << file.path << ":" << i + 1;
  }
}

TEST(Layers, PublicHeadersIncludeTheStandardLibraryOnly) {
  // The compiler's intrinsics are no library, and CUDA's headers are read by nvcc alone.
  const std::vector<std::string> allowed{"immintrin.h", "cuda_fp16.h", "cuda_runtime.h"};
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
