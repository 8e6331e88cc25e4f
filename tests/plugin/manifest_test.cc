// plugin.toml: every way in which it can be wrong, and which folders are searched.
#include "fixture.h"
#include "names.h"

namespace lmx {
namespace {

using lmx_test::Names;
using ManifestTest = PluginTest;

std::string add_error(const std::filesystem::path& directory) {
  return user_error([&] { Registry::instance().add_directory(directory.string()); });
}

TEST_F(ManifestTest, SyntaxErrorNamesLineAndColumn) {
  const std::string file = write("a/plugin.toml", "name = \"a\"\nkind = \n");
  EXPECT_THAT(add_error(directory_), Names(file + ":2:"));
}

TEST_F(ManifestTest, DuplicateKey) {
  write("a/plugin.toml", "name = \"a\"\nname = \"b\"\n");
  EXPECT_THAT(add_error(directory_), Names("plugin.toml:2:"));
}

TEST_F(ManifestTest, MissingKey) {
  write("a/plugin.toml", "name = \"a\"\nkind = \"model\"\nversion = \"1\"\nsummary = \"s\"\n");
  EXPECT_THAT(add_error(directory_), Names("'licence'", "missing"));
}

TEST_F(ManifestTest, UnknownKeyNamesTheNearest) {
  write("a/plugin.toml", manifest("a", "model") + "licens = \"x\"\n");
  EXPECT_THAT(add_error(directory_), Names("plugin.toml:6:1:", "'licens'", "'licence'?"));
}

TEST_F(ManifestTest, ValueOfAnotherType) {
  write("a/plugin.toml", "name = \"a\"\nkind = \"model\"\nversion = 1\nlicence = \"MIT\"\nsummary = \"s\"\n");
  EXPECT_THAT(add_error(directory_), Names("'version'", "empty"));
}

TEST_F(ManifestTest, EmptyValue) {
  write("a/plugin.toml", "name = \"a\"\nkind = \"model\"\nversion = \"1\"\nlicence = \"\"\nsummary = \"s\"\n");
  EXPECT_THAT(add_error(directory_), Names("'licence'", "empty"));
}

TEST_F(ManifestTest, UnknownKindNamesTheNearestAndAll) {
  write("a/plugin.toml", manifest("a", "bather"));
  EXPECT_THAT(add_error(directory_),
              Names("'bather'", "'batcher'?", "model, sync, batcher, comm, loss, optimizer, schedule"));
}

TEST_F(ManifestTest, NameThatIsNoIdentifier) {
  for (const std::string name : {"Upper", "a-b", "../x", "9a", "a b", "größe"}) {
    write("a/plugin.toml", manifest(name, "model"));
    EXPECT_THAT(add_error(directory_), Names("'" + name + "'", "plugin name"));
  }
}

TEST_F(ManifestTest, BadFolderAddsNoneOfItsPlugins) {
  write("a/plugin.toml", manifest("test_before_bad", "model"));
  write("b/plugin.toml", "nonsense");
  add_error(directory_);
  for (const PluginInfo& info : Registry::instance().list()) EXPECT_NE(info.name, "test_before_bad");
}

TEST_F(ManifestTest, FoundInTheFolderItselfAndTwoLevelsBelow) {
  write("plugin.toml", manifest("test_level_0", "model"));
  write("a/plugin.toml", manifest("test_level_1", "sync"));
  write("models/a/plugin.toml", manifest("test_level_2", "comm"));
  write("models/a/deep/plugin.toml", manifest("test_level_3", "model"));
  Registry::instance().add_directory(directory_.string());
  std::vector<std::string> names;
  for (const PluginInfo& info : Registry::instance().list()) {
    if (info.name.starts_with("test_level_")) names.push_back(info.kind + " " + info.name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("model test_level_0", "sync test_level_1", "comm test_level_2"));
}

TEST_F(ManifestTest, EmptyFolderIsFine) {
  EXPECT_NO_THROW(Registry::instance().add_directory(directory_.string()));
}

}  // namespace
}  // namespace lmx
