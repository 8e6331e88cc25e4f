// Processes that mpirun has started with different command lines or builds: one message reports the difference, before
// a run folder is made.
#include "comm/mpi_here.h"
#include "lmx/error.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using lmx::str;

class MismatchTest : public RunTest {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
    const Outcome o = run("probe", {"comm={name: mpi, ranks: 1}", "train.steps=1"});
    if (o.code == 2 && o.err.find("no MPI") != std::string::npos) GTEST_SKIP() << o.err;
    ASSERT_THAT(o, Succeeds());
  }

  // Rank 0 runs `first`, rank 1 `second`.
  Outcome run_both(const Words& first, const Words& second) const {
    Words words{"mpirun"};
    if (geteuid() == 0) words.push_back("--allow-run-as-root");
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none", "-q", "--mca", "btl_tcp_if_include", "lo",
                               "--mca", "oob_tcp_if_include", "lo", "-n", "1"});
    words.insert(words.end(), first.begin(), first.end());
    words.insert(words.end(), {":", "-n", "1"});
    words.insert(words.end(), second.begin(), second.end());
    return run_process(words, environment());
  }

  void expect_one_message(const Outcome& o, int code, const testing::Matcher<std::string>& text) const {
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_THAT(o.err, text);
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_FALSE(fs::exists(folder_ / "m")) << "a run was started";
  }

  // A copy of the build with one more byte at the end of `file`, which changes only its hash. Returns its lmx.
  std::string other_build(const fs::path& file) const {
    const fs::path build = build_path(), copy = folder_ / "build";
    fs::create_directories(copy);
    for (const char* part : {"bin", "lib"})
      fs::copy(build / part, copy / part, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    std::ofstream(copy / file, std::ios::binary | std::ios::app) << '\0';
    return copy / "bin" / "lmx";
  }
  Words of_build(const std::string& lmx, Words words) const {
    words[0] = lmx;
    return words;
  }

  const Words mpi_{"comm={name: mpi}"};
};

TEST_F(MismatchTest, Recipes) {
  const Outcome o = run_both(command("m", mpi_), command("m", {"comm={name: mpi}", "optimizer.lr=0.5"}));
  expect_one_message(o, 2, Names("rank 1", "optimizer.lr", "0.5 there", "0.01 on rank 0"));
}

TEST_F(MismatchTest, Plugins) {
  const std::string lmx = other_build("lib/lmx/plugins/model/lstm/lstm.so");
  const Outcome o = run_both(command("m", mpi_), of_build(lmx, command("m", mpi_)));
  expect_one_message(o, 2, Names("rank 1", "plugin model/lstm"));
}

TEST_F(MismatchTest, Builds) {
  const std::string lmx = other_build("lib/liblmx_core.so");
  const Outcome o = run_both(command("m", mpi_), of_build(lmx, command("m", mpi_)));
  expect_one_message(o, 2, Names("rank 1", "build of lmx"));
}

// The same path, on hosts with separate file systems.
TEST_F(MismatchTest, Data) {
  std::string recipe = kTinyRecipe;
  const size_t begin = recipe.find("data:");
  recipe.replace(begin, recipe.find('\n', begin) - begin,
                 "data: {name: text, files: [a.txt], vocab_size: 50, valid_fraction: 0.1}");
  write("tiny.yaml", recipe);
  const auto on_host = [&](const std::string& host, int words) {
    fs::create_directories(folder_ / host);
    std::string text;
    for (int i = 0; i < words; ++i) text += str("word", i * i % 101, i % 9 == 0 ? "\n" : " ");
    write(host + "/a.txt", text);
    Words line{"bash", "-c", "cd \"$0\" && exec \"$@\"", path(host)};
    const auto own = command("m", {"comm={name: mpi}"});
    line.insert(line.end(), own.begin(), own.end());
    return line;
  };
  const Outcome o = run_both(on_host("host0", 6000), on_host("host1", 6003));
  EXPECT_EQ(o.code, 2) << o.err;  // stderr also has the messages of each host's preparation
  EXPECT_THAT(o.err, Names("error: [comm] rank 1", "text"));
  EXPECT_EQ(o.err.find("error:"), o.err.rfind("error:")) << o.err;
  EXPECT_FALSE(fs::exists(folder_ / "m"));
}

TEST_F(MismatchTest, Groups) {
  const Outcome o = run_both(command("m", mpi_), command("m"));
  expect_one_message(o, 2, Names("rank 1 of 2:", "comm.name=self"));
}

TEST_F(MismatchTest, ManyProcessesAroundOne) {
  for (const char* comm : {"comm={name: self}", "comm={name: virtual, ranks: 2}"}) {
    const Outcome o = run_both(command("m", {comm}), command("m", {comm}));
    expect_one_message(o, 2, Names("2 processes", "comm.name="));
  }
}

// A machine without MPI's library: the plugin needs a library that does not exist.
TEST_F(MismatchTest, NoLibraryOfMpi) {
  const fs::path plugin = "lib/lmx/plugins/comm/mpi/mpi.so";
  const std::string lmx = other_build(plugin);
  std::string library = read_file(folder_ / "build" / plugin);
  const size_t at = library.find("libmpi.so");
  if (at == std::string::npos) GTEST_SKIP() << "this MPI's library has another name";
  std::ofstream(folder_ / "build" / plugin, std::ios::binary) << library.replace(at, 9, "libnil.so");
  const Outcome o = run_process(of_build(lmx, command("m", {"comm={name: mpi, ranks: 2}"})), environment());
  expect_one_message(o, 2, Names("mpi.so:", "libnil.so", "openmpi-bin"));
  EXPECT_THAT(run_process(of_build(lmx, command("m", {"train.steps=1"})), environment()), Succeeds()) << "needs no MPI";
}

TEST_F(MismatchTest, AFileThatOneRankLacks) {
  Words second = command("m", mpi_);
  second[2] = path("absent.yaml");
  expect_one_message(run_both(command("m", mpi_), second), 2, Names("rank 1 of 2:", "absent.yaml"));
}

}  // namespace
}  // namespace lmx_test
