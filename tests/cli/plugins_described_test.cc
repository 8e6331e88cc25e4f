// A plugin's description: the data that is known without loading the plugin, and the cases in which it must be loaded.
// The plugin writes a file when it is loaded.
#include <gmock/gmock.h>

#include "names.h"
#include "paths.h"
#include "patterns.h"
#include "process/lmx_process.h"
#include "temp_folder.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

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
  Outcome run(const std::vector<std::string>& arguments) {
    fs::remove(folder_ / "witness");
    return run_lmx(arguments, {{"LMX_PLUGIN_PATH", folder_ / "p"}, {"LMX_TEST_WITNESS", folder_ / "witness"}});
  }
  bool loaded() const { return fs::exists(folder_ / "witness"); }
  // Runs every command that needs fields: the answers are those of the description, and the library was or was not
  // loaded.
  void expect_answers(bool loads) {
    const Outcome info = run({"plugins", "info", "test_good"});
    EXPECT_EQ(info.code, 0) << info.err;
    EXPECT_THAT(info.out, AllOf(HasSubstr("-libstdc++"), testing::ContainsRegex("\nsha256 +[0-9a-f]{64}\n"),
                                testing::ContainsRegex("\nlength +int +35 +>= 1 +tokens of a sequence\n"),
                                testing::ContainsRegex("\norder +choice +corpus +one of corpus, random +order of")));
    EXPECT_EQ(loaded(), loads);
    const Outcome schema = run({"config", kRecipeFile, "~batcher", "+batcher.name=test_good", "--schema"});
    EXPECT_EQ(schema.code, 0) << schema.err;
    EXPECT_THAT(schema.out, Names("\nbatcher: test_good (others: ", "\n  explode  bool"));
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
  const Outcome o = run({"config", kRecipeFile, "~batcher.sequence_length", "batcher.name=test_good"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(loaded());
}

// Installation and packaging change a library's time and bytes, and moving changes its path.
TEST_F(Described, AStrippedLibraryIsTheSame) {
  ASSERT_EQ(run_process({"strip", library()}).code, 0);
  fs::last_write_time(library(), fs::file_time_type::clock::now() + std::chrono::hours(1));
  expect_answers(false);
}

TEST_F(Described, ADescriptionOfAnotherLibraryCountsForNothing) {
  const std::string text = read_file(description());
  for (const char* key : {"library", "core"}) {
    const std::string other = replaced(text, str(key, " = \"[0-9a-f]{4}"), str(key, " = \"...."));
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
  for (const std::vector<std::string>& command : {std::vector<std::string>{"plugins", "info", "test_good"},
                                                  {"config", kRecipeFile, "sync.rest.strategy=test_good", "--schema"},
                                                  {"config", kRecipeFile, "sync.rest.strategy=test_good"},
                                                  {"plugins", "describe", library()},
                                                  {"plugins", "check", library()}}) {
    const Outcome o = run(command);
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, Names("test_good.so:", "Foreign-1.0-libstdc++-0123-nosan-libstdc++", "rebuild"));
    EXPECT_FALSE(loaded()) << command[1];
  }
}

TEST_F(Described, DescribeWritesWhatTheBuildWrote) {
  const std::string text = read_file(description());
  EXPECT_THAT(text, Names("lmx plugins describe", "name = \"length\"", "range = \">= 1\""));
  fs::remove(description());
  const Outcome o = run({"plugins", "describe", library()});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, fs::canonical(description()).string() + "\n");
  EXPECT_EQ(read_file(description()), text);
  expect_answers(false);
}

TEST_F(Described, ALibraryWithoutALinkersBuildIdIsLoaded) {
  use("no_link_id");
  const Outcome o = run({"plugins", "describe", library()});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("test_good.so:", "build id", "-Wl,--build-id"));
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
