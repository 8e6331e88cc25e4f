// lmx plugins list and info, for the plugins that tests/plugin builds.
#include <gmock/gmock.h>

#include "names.h"
#include "paths.h"
#include "process/lmx_process.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

const std::string kGood = build_path("/tests/plugins/good");

TEST(PluginsCommand, ListShowsPluginDir) {
  const Outcome o = run_lmx({"plugins", "list", "--plugin-dir", kGood});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, MatchesRegex("KIND +NAME +VERSION +SUMMARY +PATH\n(.|\n)*"));
  EXPECT_THAT(o.out, HasSubstr("a plugin for tests: good"));
  EXPECT_THAT(o.out, HasSubstr(kGood + "/test_good/test_good.so"));
}

TEST(PluginsCommand, WhatIsBuiltInIsShown) {
  const Outcome all = run_lmx({"plugins", "list"});
  for (const char* line :
       {"optimizer +adam +- +built in", "loss +full_softmax +- +built in", "schedule +linear +- +built in"})
    EXPECT_THAT(all.out, testing::ContainsRegex(line));
  const Outcome adam = run_lmx({"plugins", "info", "adam"});
  EXPECT_EQ(adam.code, 0) << adam.err;
  EXPECT_THAT(adam.out, testing::ContainsRegex("\nlr +float +[0-9.]+ +>= 0 +learning rate"));
  EXPECT_EQ(run_lmx({"plugins", "info", "adam", "--kind", "loss"}).code, 2);
  EXPECT_THAT(run_lmx({"plugins", "info", "adagard"}).err, HasSubstr("adagrad"));
}

TEST(PluginsCommand, ListShowsPluginPath) {
  const Outcome o = run_lmx({"plugins", "list"}, {{"LMX_PLUGIN_PATH", kGood}});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("test_good"));
  EXPECT_THAT(run_lmx({"plugins", "list"}, {{"LMX_PLUGIN_PATH", ""}}).out, Not(HasSubstr("test_good")));
}

TEST(PluginsCommand, PluginDirMayBeRepeated) {
  const Outcome o =
      run_lmx({"plugins", "list", "--plugin-dir", kGood, "--plugin-dir", build_path("/tests/plugins/no_symbol")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("test_good"));
  EXPECT_THAT(o.out, HasSubstr("test_no_symbol"));
}

TEST(PluginsCommand, InfoPrintsEachField) {
  const Outcome o = run_lmx({"plugins", "info", "--plugin-dir", kGood, "test_good"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("licence  MIT\n"));
  EXPECT_THAT(o.out, MatchesRegex("(.|\n)*sha256 +[0-9a-f]+\n(.|\n)*"));
  EXPECT_THAT(o.out, MatchesRegex("(.|\n)*\nlength +[a-z]+ +35 +>= 1 +tokens of a sequence\n(.|\n)*"));
  EXPECT_THAT(o.out,
              MatchesRegex("(.|\n)*\norder +[a-z]+ +corpus +one of corpus, random +order of the sequences\n(.|\n)*"));
}

TEST(PluginsCommand, LossesOptimizersSchedulesAndCodecsAreListedAndDescribed) {
  const std::string folder = build_path("/tests/plugins/own_kinds");
  const Outcome list = run_lmx({"plugins", "list", "--plugin-dir", folder});
  EXPECT_EQ(list.code, 0) << list.err;
  for (const char* kind : {"loss", "optimizer", "schedule", "codec"}) {
    const std::string name = std::string("test_") + kind;
    EXPECT_THAT(list.out, MatchesRegex("(.|\n)*\n" + std::string(kind) + " +" + name + " +1.2.3 (.|\n)*"));
    const Outcome info = run_lmx({"plugins", "info", name, "--kind", kind, "--plugin-dir", folder});
    EXPECT_EQ(info.code, 0) << info.err;
    EXPECT_THAT(info.out, HasSubstr("the promise that is broken"));
  }
}

TEST(PluginsCommand, InfoOfAnUnknownNameNamesTheNearest) {
  const Outcome o = run_lmx({"plugins", "info", "test_goood", "--plugin-dir", kGood});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("'test_goood'", "'test_good'?"));
}

TEST(PluginsCommand, InfoOfABrokenPluginNamesTheFile) {
  const Outcome o =
      run_lmx({"plugins", "info", "test_wrong_abi", "--plugin-dir", build_path("/tests/plugins/wrong_abi")});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, Names("test_wrong_abi.so:", "ABI 41"));
}

TEST(PluginsCommand, OneNameInTwoKindsNeedsKind) {
  // The plugin.toml of other_kind contains kind model, that of good kind batcher.
  const std::vector<std::string> info{
      "plugins", "info", "test_good", "--plugin-dir", kGood, "--plugin-dir", build_path("/tests/plugins/other_kind")};
  const Outcome o = run_lmx(info);
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("2 plugins", "--kind model", "--kind batcher"));
  std::vector<std::string> chosen = info;
  chosen.insert(chosen.end(), {"--kind", "batcher"});
  EXPECT_EQ(run_lmx(chosen).code, 0);
}

TEST(PluginsCommand, MissingFolder) {
  const Outcome o = run_lmx({"plugins", "list", "--plugin-dir", missing_path()});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "error: [plugin] plugin directory: " + missing_path() + " is no directory\n");
}

}  // namespace
}  // namespace lmx_test
