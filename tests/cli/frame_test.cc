// The frame of the command line: help, version, unknown words, exit codes, and output streams.
#include <nlohmann/json.hpp>

#include "lmx/api.h"
#include "lmx/matmul.h"
#include "process/emulated.h"
#include "process/lmx_process.h"

namespace lmx_test {
namespace {

// An error of the user: exit code 2, one message on stderr, nothing on stdout.
void expect_usage_error(const Words& arguments, const NamesMatcher& facts) {
  const Outcome o = run_lmx(arguments);
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, StartsWith("error: "));
  EXPECT_THAT(o.err, facts);
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
}

TEST(OutcomeMatchers, LookAtTheCodeAndAtTheirStream) {
  const Outcome good{0, "one two", "three"}, failed{1, "", "error: three"}, refused{2, "one", "error: three"},
      twice{2, "", "error: three\nerror: three"}, never{1, "", "three"};
  EXPECT_THAT(good, AllOf(Succeeds(), Prints("one", "two"), Warns("three"), Prints(HasSubstr("one"), Not(IsEmpty()))));
  EXPECT_THAT(good, Not(testing::AnyOf(Prints("one", "three"), Prints(HasSubstr("one"), IsEmpty()), Warns("one"))));
  EXPECT_THAT(failed, AllOf(Fails("three"), Not(Succeeds()), Not(Warns("three")), Not(Refuses("three"))));
  EXPECT_THAT(twice, Not(Refuses("three")));
  EXPECT_THAT(never, Not(Fails("three")));
  EXPECT_THAT(refused, AllOf(Refuses("three"), Not(Refuses("one")), Not(Fails("three")), Not(Prints("one"))));
}

// Every command, found in the help text, so that a new command is tested without being listed here.
std::vector<Words> all_commands(const Words& above = {}) {
  Words arguments = above;
  arguments.push_back("--help");
  const std::string help = run_lmx(arguments).out;
  std::vector<Words> commands{above};
  std::istringstream lines(help);
  bool in_list = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Commands:") {
      in_list = true;
    } else if (in_list && line.size() > 2 && line[2] != ' ') {
      Words command = above;
      command.push_back(line.substr(2, line.find(' ', 2) - 2));
      for (auto& c : all_commands(command)) commands.push_back(std::move(c));
    }
  }
  return commands;
}

TEST(Frame, EveryHelpStartsWithExamples) {
  const auto commands = all_commands();
  EXPECT_GE(commands.size(), 4u);  // lmx, plugins, plugins list, plugins info
  for (Words command : commands) {
    for (const char* flag : {"--help", "-h"}) {
      Words arguments = command;
      arguments.push_back(flag);
      const Outcome o = run_lmx(arguments);
      EXPECT_EQ(o.code, 0);
      EXPECT_EQ(o.err, "");
      EXPECT_THAT(o.out, StartsWith("Examples:\n  lmx ")) << testing::PrintToString(command);
      EXPECT_THAT(o.out, HasSubstr("Usage: lmx"));
    }
  }
}

TEST(Frame, NoArgumentsPrintsTheHelp) {
  const Outcome o = run_lmx({});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out, run_lmx({"--help"}).out);
}

TEST(Frame, Version) {
  EXPECT_THAT(run_lmx({"--version"}),
              Prints(StartsWith(std::string("lmx ") + lmx::kVersion + " (MIT licence)\n\nbuilt by   "),
                     Names("-libstdc++\nC library  glibc 2.", "\nlibraries  oneDNN 2.", "(Apache-2.0)\n", "libcurl 7.",
                           " (curl)\n", "ICU ", "SentencePiece ")));
}

TEST(Frame, MisspeltCommandNamesTheNearest) {
  expect_usage_error({"plguins", "list"}, Names("'lmx plguins'", "'plugins'?", "commands: "));
  expect_usage_error({"plugins", "lsit"}, Names("'lmx plugins lsit'", "'list'?", "commands: list, info"));
  expect_usage_error({"zzzzzzzzzz"}, Names("'lmx zzzzzzzzzz'; commands: "));
}

TEST(Frame, MisspeltFlagNamesTheNearest) {
  expect_usage_error({"--versoin"}, Names("--versoin", "'--version'?"));
  expect_usage_error({"plugins", "list", "--plugn-dir", "x"}, Names("--plugn-dir", "'--plugin-dir'?"));
  expect_usage_error({"plugins", "list", "--plugn-dir=x"}, Names("--plugn-dir", "'--plugin-dir'?"));
  expect_usage_error({"plugins", "list", "-x"}, Names("flag -x"));
}

TEST(Frame, HydrasMultirunIsASweep) {
  for (const char* flag : {"-m", "--multirun"})
    expect_usage_error({"run", "x.yaml", flag}, Names(std::string("flag ") + flag + ";", "lmx sweep RECIPE key=1,2,3"));
}

// The words after a command belong to it, even if they are names of commands.
TEST(Frame, AFolderMayBeCalledAsACommand) {
  expect_usage_error({"report", "run"}, Names("run"));
  EXPECT_THAT(run_lmx({"report", "run"}).err, testing::Not(HasSubstr("RECIPE")));
}

TEST(Frame, GroupWithoutCommand) {
  expect_usage_error({"plugins"}, Names("'lmx plugins'", "command: list, info"));
}

TEST(Frame, MissingAndSurplusArguments) {
  expect_usage_error({"plugins", "info"}, Names("lmx plugins info --help"));
  expect_usage_error({"plugins", "list", "surplus"}, Names("surplus"));
  expect_usage_error({"plugins", "list", "--plugin-dir"}, Names("--plugin-dir"));
}

TEST(Frame, ValueOutsideTheAllowedOnes) {
  expect_usage_error({"plugins", "info", "x", "--kind", "modle"}, Names("--kind"));
}

// lmx devices, on the emulated device and without one.

class DevicesCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
  }
};

TEST_F(DevicesCommand, ListsTheCpuAndEachGpu) {
  EXPECT_THAT(run_lmx({"devices"}, {{"LMX_CUDA_LIBRARY", emulated_cuda()}}),
              Prints("cpu     " + std::string(lmx::cpu_isa()),
                     "cuda:0  Emulated CUDA device, compute capability 9.0  8.6 GB  13.0"));
  const Outcome json = run_lmx({"devices", "--json"}, {{"LMX_CUDA_LIBRARY", emulated_cuda()}});
  const auto all = nlohmann::json::parse(json.out);
  ASSERT_EQ(all["devices"].size(), 2u);
  EXPECT_EQ(all["devices"][0]["device"], "cpu");
  const nlohmann::json gpu{{"device", "cuda:0"},
                           {"name", "Emulated CUDA device"},
                           {"compute_capability", "9.0"},
                           {"memory_bytes", int64_t{8} << 30},
                           {"driver", "13.0"},
                           {"runtime", "13.0"}};
  EXPECT_EQ(all["devices"][1], gpu);
  EXPECT_FALSE(all.contains("cuda_unavailable"));
}

TEST_F(DevicesCommand, SaysWhyThereIsNoGpu) {
  const std::map<std::string, std::string> old{{"LMX_CUDA_LIBRARY", emulated_cuda()}, {"LMX_EMULATED_ERROR", "driver"}};
  EXPECT_THAT(run_lmx({"devices"}, old), Prints("no CUDA device: the driver of this machine supports CUDA up to 12.2"));
  const auto all = nlohmann::json::parse(run_lmx({"devices", "--json"}, old).out);
  EXPECT_EQ(all["devices"].size(), 1u);
  EXPECT_THAT(all["cuda_unavailable"].get<std::string>(), Names("CUDA up to 12.2"));
}

}  // namespace

}  // namespace lmx_test
