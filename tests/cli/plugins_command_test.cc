// lmx plugins list and info, for the plugins that tests/plugin builds.
#include <set>
#include <sstream>

#include "process/lmx_process.h"

namespace lmx_test {
namespace {

using testing::MatchesRegex;

const std::string kGood = build_path("/tests/plugins/good");

TEST(PluginsCommand, ListShowsPluginDir) {
  EXPECT_THAT(run_lmx({"plugins", "list", "--plugin-dir", kGood}),
              Prints(MatchesRegex("KIND +NAME +VERSION +SUMMARY +PATH\n(.|\n)*"), HasSubstr("a plugin for tests: good"),
                     HasSubstr(kGood + "/test_good/test_good.so")));
}

TEST(PluginsCommand, WhatIsBuiltInIsShown) {
  const Outcome all = run_lmx({"plugins", "list"});
  for (const char* line :
       {"optimizer +adam +- +built in", "loss +full_softmax +- +built in", "schedule +linear +- +built in"})
    EXPECT_THAT(all.out, testing::ContainsRegex(line));
  const Outcome adam = run_lmx({"plugins", "info", "adam"});
  EXPECT_THAT(adam, Prints(testing::ContainsRegex("\nlr +float +[0-9.]+ +>= 0 +learning rate")));
  EXPECT_THAT(run_lmx({"plugins", "info", "adam", "--kind", "loss"}), Refuses("no loss 'adam'", "kind optimizer"));
  EXPECT_THAT(run_lmx({"plugins", "info", "adagard"}).err, HasSubstr("adagrad"));
}

// Without a group, `optimizer=NAME` is an error, although the component exists.
TEST(PluginsCommand, WhatIsBuiltInHasAGroup) {
  std::istringstream lines(run_lmx({"plugins", "list"}).out);
  std::set<std::string> groups;
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with("built in")) continue;
    std::istringstream words(line);
    std::string kind, name;
    words >> kind >> name;
    if (kind == "optimizer" || kind == "loss" || kind == "schedule")
      groups.insert(lmx::str("/recipes/", kind, "/", name, ".yaml"));
  }
  EXPECT_GT(groups.size(), 15u);
  for (const std::string& group : groups) EXPECT_TRUE(fs::exists(source_path(group))) << group;
}

TEST(PluginsCommand, ListShowsPluginPath) {
  EXPECT_THAT(run_lmx({"plugins", "list"}, {{"LMX_PLUGIN_PATH", kGood}}), Prints("test_good"));
  EXPECT_THAT(run_lmx({"plugins", "list"}, {{"LMX_PLUGIN_PATH", ""}}).out, Not(HasSubstr("test_good")));
}

TEST(PluginsCommand, PluginDirMayBeRepeated) {
  const Outcome o =
      run_lmx({"plugins", "list", "--plugin-dir", kGood, "--plugin-dir", build_path("/tests/plugins/no_symbol")});
  EXPECT_THAT(o, Prints("test_good", "test_no_symbol"));
}

TEST(PluginsCommand, InfoPrintsEachField) {
  const Outcome o = run_lmx({"plugins", "info", "--plugin-dir", kGood, "test_good"});
  EXPECT_THAT(o, Prints(HasSubstr("licence  MIT\n"), MatchesRegex("(.|\n)*sha256 +[0-9a-f]+\n(.|\n)*"),
                        MatchesRegex("(.|\n)*\nlength +[a-z]+ +35 +>= 1 +tokens of a sequence\n(.|\n)*")));
  EXPECT_THAT(o.out,
              MatchesRegex("(.|\n)*\norder +[a-z]+ +corpus +one of corpus, random +order of the sequences\n(.|\n)*"));
}

TEST(PluginsCommand, LossesOptimizersSchedulesAndCodecsAreListedAndDescribed) {
  const std::string folder = build_path("/tests/plugins/own_kinds");
  const Outcome list = run_lmx({"plugins", "list", "--plugin-dir", folder});
  EXPECT_THAT(list, Succeeds());
  for (const char* kind : {"loss", "optimizer", "schedule", "codec"}) {
    const std::string name = std::string("test_") + kind;
    EXPECT_THAT(list.out, MatchesRegex("(.|\n)*\n" + std::string(kind) + " +" + name + " +1.2.3 (.|\n)*"));
    EXPECT_THAT(run_lmx({"plugins", "info", name, "--kind", kind, "--plugin-dir", folder}),
                Prints("the promise that is broken"));
  }
}

TEST(PluginsCommand, InfoOfAnUnknownNameNamesTheNearest) {
  EXPECT_THAT(run_lmx({"plugins", "info", "test_goood", "--plugin-dir", kGood}),
              Refuses("'test_goood'", "'test_good'?"));
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
  const Words info{
      "plugins", "info", "test_good", "--plugin-dir", kGood, "--plugin-dir", build_path("/tests/plugins/other_kind")};
  EXPECT_THAT(run_lmx(info), Refuses("2 plugins", "--kind model", "--kind batcher"));
  EXPECT_THAT(run_lmx(joined(info, {"--kind", "batcher"})), Succeeds());
}

TEST(PluginsCommand, MissingFolder) {
  const Outcome o = run_lmx({"plugins", "list", "--plugin-dir", missing_path()});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "error: [plugin] plugin directory: " + missing_path() + " is no directory\n");
}

// A plugin's description: the data that is known without loading the plugin, and the cases in which it must be loaded.
// The plugin writes a file when it is loaded.

const std::string kPlugins = build_path("/tests/plugins/");
const std::string kRecipeFile = source_path("/recipes/quickstart.yaml");

class Described : public testing::Test, protected TempFolder {
 protected:
  Described() { use("good"); }

  // Uses a copy of a plugin that tests/plugin/CMakeLists.txt built.
  void use(const std::string& built) {
    fs::remove_all(folder_ / "p");
    fs::copy(kPlugins + built, folder_ / "p", fs::copy_options::recursive);
  }
  fs::path library() const { return folder_ / "p/test_good/test_good.so"; }
  fs::path description() const { return folder_ / "p/test_good/test_good.fields.toml"; }
  Outcome run(const Words& arguments) {
    fs::remove(folder_ / "witness");
    return run_lmx(arguments, {{"LMX_PLUGIN_PATH", folder_ / "p"}, {"LMX_TEST_WITNESS", folder_ / "witness"}});
  }
  bool loaded() const { return fs::exists(folder_ / "witness"); }
  // Runs every command that needs fields: the answers are those of the description, and the library was or was not
  // loaded.
  void expect_answers(bool loads) {
    EXPECT_THAT(run({"plugins", "info", "test_good"}),
                Prints(HasSubstr("-libstdc++"), testing::ContainsRegex("\nsha256 +[0-9a-f]{64}\n"),
                       testing::ContainsRegex("\nlength +int +35 +>= 1 +tokens of a sequence\n"),
                       testing::ContainsRegex("\norder +choice +corpus +one of corpus, random +order of")));
    EXPECT_EQ(loaded(), loads);
    EXPECT_THAT(run({"config", kRecipeFile, "~batcher", "+batcher.name=test_good", "--schema"}),
                Prints("\nbatcher: test_good (others: ", "\n  explode  bool"));
    EXPECT_EQ(loaded(), loads);
    const Outcome words =
        run({"__complete", "run", kRecipeFile, "~batcher", "+batcher.name=test_good", "batcher.order="});
    EXPECT_EQ(words.out, "batcher.order=corpus\nbatcher.order=random\n") << words.err;
    EXPECT_EQ(loaded(), loads);
  }
};

TEST_F(Described, NothingIsLoaded) {
  expect_answers(false);
}

TEST_F(Described, WithoutADescriptionItIsLoaded) {
  fs::remove(description());
  expect_answers(true);
}

TEST_F(Described, BuildingARecipeStillLoads) {
  EXPECT_THAT(run({"config", kRecipeFile, "~batcher.sequence_length", "batcher.name=test_good"}), Succeeds());
  EXPECT_TRUE(loaded());
}

// Installation and packaging change a library's time and bytes, and moving changes its path.
TEST_F(Described, AStrippedLibraryIsTheSame) {
  ASSERT_THAT(run_process({"strip", library()}), Succeeds());
  fs::last_write_time(library(), fs::file_time_type::clock::now() + std::chrono::hours(1));
  expect_answers(false);
}

TEST_F(Described, ADescriptionOfAnotherLibraryCountsForNothing) {
  const std::string text = read_file(description());
  for (const char* key : {"library", "core"}) {
    const std::string other = replaced(text, lmx::str(key, " = \"[0-9a-f]{4}"), lmx::str(key, " = \"...."));
    ASSERT_NE(other, text) << text;
    std::ofstream(description()) << other;
    expect_answers(true);
  }
}

TEST_F(Described, ADamagedDescriptionCountsForNothing) {
  const std::string text = read_file(description());
  for (const std::string& damaged :
       {text.substr(0, text.size() / 2), std::string(), std::string("kind = \n"),
        replaced(text, "type = \"int\"", "type = 3"), replaced(text, "\"batcher\"", "\"model\"")}) {
    std::ofstream(description()) << damaged;
    run({"plugins", "info", "test_good"});
    EXPECT_TRUE(loaded()) << damaged;
  }
}

TEST_F(Described, AForeignBuildIsRefusedBeforeItsCodeRuns) {
  use("wrong_build");  // its plugin.toml describes a sync plugin
  for (const Words& command : {Words{"plugins", "info", "test_good"},
                               {"config", kRecipeFile, "sync.rest.strategy=test_good", "--schema"},
                               {"config", kRecipeFile, "sync.rest.strategy=test_good"},
                               {"plugins", "describe", library()},
                               {"plugins", "check", library()}}) {
    EXPECT_THAT(run(command), Refuses("test_good.so:", "Foreign-1.0-libstdc++-0123-nosan-libstdc++", "rebuild"));
    EXPECT_FALSE(loaded()) << command[1];
  }
}

TEST_F(Described, DescribeWritesWhatTheBuildWrote) {
  const std::string text = read_file(description());
  EXPECT_THAT(text, Names("lmx plugins describe", "name = \"length\"", "range = \">= 1\""));
  fs::remove(description());
  const Outcome o = run({"plugins", "describe", library()});
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(o.out, fs::canonical(description()).string() + "\n");
  EXPECT_EQ(read_file(description()), text);
  expect_answers(false);
}

TEST_F(Described, ALibraryWithoutALinkersBuildIdIsLoaded) {
  use("no_link_id");
  EXPECT_THAT(run({"plugins", "describe", library()}), Refuses("test_good.so:", "build id", "-Wl,--build-id"));
  EXPECT_FALSE(fs::exists(description()));
  expect_answers(true);
}

TEST_F(Described, DescribeNamesWhatIsWrong) {
  EXPECT_THAT(run({"plugins", "describe", folder_ / "none.so"}).err, Names("none.so"));
  fs::copy(library(), folder_ / "alone.so");
  EXPECT_THAT(run({"plugins", "describe", folder_ / "alone.so"}).err,
              Names("alone.so:", "plugin.toml", "lmx_plugin()"));
  fs::copy(library(), library().parent_path() / "other.so");
  EXPECT_THAT(run({"plugins", "describe", library().parent_path() / "other.so"}).err, Names("another plugin"));
}

// All plugins of this build have descriptions, so that no shipped plugin is loaded for its fields.
TEST(ShippedPlugins, AreDescribed) {
  int plugins = 0;
  for (const auto& entry : fs::recursive_directory_iterator(build_path("/lib/lmx/plugins"))) {
    if (entry.path().filename() != "plugin.toml") continue;
    const fs::path name = entry.path().parent_path().filename();
    EXPECT_TRUE(fs::exists(entry.path().parent_path() / (name.string() + ".fields.toml"))) << name;
    ++plugins;
  }
  EXPECT_GE(plugins, 19);
}

}  // namespace

}  // namespace lmx_test
