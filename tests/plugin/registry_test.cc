// The registry: search path, loading, and one clear error for each broken plugin.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/files.h"
#include "fixture.h"

namespace lmx {
namespace {

using namespace lmx_test;
using ::testing::EndsWith;
using RegistryTest = PluginTest;
using LengthFactory = int64_t (*)(const Node& config, const std::string& path);

const PluginInfo& good() {
  Registry::instance().add_directory(built("good"));
  return Registry::instance().find(PluginKind::batcher, "test_good");
}

// The message for a folder that holds one broken plugin.
std::string load_error(const std::string& folder, const std::string& name, PluginKind kind = PluginKind::batcher) {
  return user_error([&] {
    Registry::instance().add_directory(folder);
    Registry::instance().find(kind, name);
  });
}

TEST_F(RegistryTest, GoodPluginIsLoadedOnFirstUse) {
  Registry::instance().add_directory(built("good"));
  const auto listed = Registry::instance().list();
  const auto entry =
      std::find_if(listed.begin(), listed.end(), [](const PluginInfo& p) { return p.name == "test_good"; });
  ASSERT_NE(entry, listed.end());
  EXPECT_EQ(entry->kind, "batcher");
  EXPECT_EQ(entry->version, "1.2.3");
  EXPECT_EQ(entry->licence, "MIT");
  const PluginInfo& info = good();
  ASSERT_NE(info.descriptor, nullptr);
  EXPECT_STREQ(info.descriptor->build_id, LMX_FULL_BUILD_ID);
  EXPECT_THAT(info.path, EndsWith("/good/test_good/test_good.so"));
  EXPECT_EQ(&info, &Registry::instance().find(PluginKind::batcher, "test_good"));
}

TEST_F(RegistryTest, HashIsTheFilesSha256) {
  const PluginInfo& info = good();
  std::FILE* pipe = popen(str("sha256sum ", info.path).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char expected[65] = {};
  EXPECT_EQ(std::fread(expected, 1, 64, pipe), 64u);
  pclose(pipe);
  EXPECT_EQ(info.hash, expected);
}

TEST_F(RegistryTest, ManyThreadsGetOnePlugin) {
  Registry::instance().add_directory(built("good"));
  std::vector<const PluginInfo*> seen(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&seen, i] { seen[i] = &Registry::instance().find(PluginKind::batcher, "test_good"); });
  }
  for (std::thread& t : threads) t.join();
  for (const PluginInfo* info : seen) EXPECT_EQ(info, seen[0]);
}

TEST_F(RegistryTest, FactoryReadsItsConfig) {
  EXPECT_EQ(create<LengthFactory>(good(), parse_yaml("{name: test_good, length: 7}", "x.yaml"), "batcher"), 7);
  EXPECT_EQ(create<LengthFactory>(good(), parse_yaml("{name: test_good}", "x.yaml"), "batcher"), 35);
}

TEST_F(RegistryTest, ExceptionInTheFactoryNamesTheFile) {
  const Node config = parse_yaml("{name: test_good, explode: true}", "x.yaml");
  EXPECT_THAT(user_error([&] { create<LengthFactory>(good(), config, "batcher"); }), Names("test_good.so:", "fuse"));
}

TEST_F(RegistryTest, UserErrorOfTheFactoryPassesAsItIs) {
  const Node config = parse_yaml("{name: test_good, length: -1}", "x.yaml");
  EXPECT_THAT(user_error([&] { create<LengthFactory>(good(), config, "batcher"); }), Names("x.yaml:1:"));
}

TEST_F(RegistryTest, WrongAbi) {
  EXPECT_THAT(load_error(built("wrong_abi"), "test_wrong_abi"),
              AllOf(Names("test_wrong_abi.so:", "ABI 41", str("ABI ", kAbi)), EndsWith("rebuild the plugin")));
}

TEST_F(RegistryTest, WrongBuild) {
  // plugin.toml says sync to keep it apart from the good one; the build id is compared before kinds are.
  EXPECT_THAT(load_error(built("wrong_build"), "test_good", PluginKind::sync),
              Names("wrong_build/test_good/test_good.so:", "Foreign-1.0-libstdc++-0123-nosan", LMX_FULL_BUILD_ID));
}

// The good plugin under another name, with `to` in place of every `from`; both have the same length.
std::string changed_plugin(const std::string& from, const std::string& to) {
  std::string bytes = read_file(built("good") + "/test_good/test_good.so");
  size_t count = 0;
  for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size(), ++count)
    bytes.replace(at, to.size(), to);
  EXPECT_GT(count, 0u) << from;
  return bytes;
}

TEST_F(RegistryTest, AnotherCppLibraryIsRefusedWithTheCompilersThatServe) {
  write("a/plugin.toml", manifest("test_libcpp", "batcher"));
  write("a/test_libcpp.so", changed_plugin("-libstdc++", "-libc++" + std::string(3, '\0')));
  EXPECT_THAT(load_error(folder_.string(), "test_libcpp"),
              Names("test_libcpp.so: built with", "-libc++, this lmx", "g++ 12 or newer", "apt-get install g++-12",
                    "-stdlib=libstdc++"));
}

// As of a plugin that g++ 14 has built, where the C++ library in a package of lmx is that of g++ 12.
TEST_F(RegistryTest, ANewerCppLibraryIsRefusedWithTheCompilerThatServes) {
  const std::string end(1, '\0');
  write("a/plugin.toml", manifest("test_newer", "batcher"));
  write("a/test_newer.so", changed_plugin(end + "GLIBCXX_3", end + "GLIBCXX_9"));
  EXPECT_THAT(load_error(folder_.string(), "test_newer"),
              Names("test_newer.so: cannot be loaded:", "version `GLIBCXX_9", "not found",
                    str("build the plugin with g++-", _GLIBCXX_RELEASE), "apt-get install g++-12"));
}

// Its containers have other sizes, so it would crash.
TEST_F(RegistryTest, DebugContainersAreAnotherBuild) {
  EXPECT_THAT(load_error(built("debug_containers"), "test_debug"), Names(LMX_FULL_BUILD_ID "-glibcxx_debug, this"));
}

TEST_F(RegistryTest, ShortDescriptor) {
  EXPECT_THAT(load_error(built("short_descriptor"), "test_short"), Names("test_short.so:", "descriptor"));
}

TEST_F(RegistryTest, MissingEntryPoint) {
  EXPECT_THAT(load_error(built("no_symbol"), "test_no_symbol"), Names("test_no_symbol.so:", "lmx_plugin"));
}

TEST_F(RegistryTest, UnresolvedSymbolIsNamed) {
  EXPECT_THAT(
      load_error(built("unresolved"), "test_unresolved"),
      AllOf(Names("test_unresolved.so:", "undefined symbol", "of_another_release"), ::testing::Not(HasSubstr("seek"))));
}

TEST_F(RegistryTest, EntryPointThatThrows) {
  EXPECT_THAT(load_error(built("throwing_entry"), "test_throwing_entry"),
              Names("test_throwing_entry.so: lmx_plugin()", "licence"));
}

TEST_F(RegistryTest, LibraryAndManifestDisagree) {
  EXPECT_THAT(load_error(built("other_name"), "test_other_name"),
              Names("test_other_name.so:", "plugin.toml", "batcher 'test_good'", "batcher 'test_other_name'"));
  EXPECT_THAT(load_error(built("other_kind"), "test_good", PluginKind::model),
              Names("test_good.so:", "plugin.toml", "batcher 'test_good'", "model 'test_good'"));
}

TEST_F(RegistryTest, NotALibrary) {
  write("a/plugin.toml", manifest("test_text", "sync"));
  write("a/test_text.so", "this is no ELF file, whatever its name says; it is long enough to have a header\n");
  EXPECT_THAT(load_error(folder_.string(), "test_text", PluginKind::sync),
              EndsWith("test_text.so: cannot be loaded: it is no shared library"));
}

TEST_F(RegistryTest, EmptyAndMissingLibrary) {
  write("a/plugin.toml", manifest("test_empty", "sync"));
  write("a/test_empty.so", "");
  write("b/plugin.toml", manifest("test_absent", "sync"));
  EXPECT_THAT(load_error(folder_.string(), "test_empty", PluginKind::sync), Names("test_empty.so:", "loaded"));
  EXPECT_THAT(load_error(folder_.string(), "test_absent", PluginKind::sync), Names("test_absent.so", "missing"));
}

// The loader would map it without a word and die of SIGBUS.
TEST_F(RegistryTest, TruncatedLibrary) {
  const std::string whole = built("good/test_good/test_good.so");
  for (const uintmax_t size : {uintmax_t{70}, uintmax_t{1000}, uintmax_t{5000}}) {
    const fs::path folder = folder_ / std::to_string(size);
    const std::string name = str("test_cut_", size);
    write(folder / "plugin.toml", manifest(name, "sync"));
    fs::copy_file(whole, folder / (name + ".so"));
    fs::resize_file(folder / (name + ".so"), size);
    EXPECT_THAT(load_error(folder.string(), name, PluginKind::sync),
                EndsWith(name + ".so: cannot be loaded: the file is truncated"));
  }
}

TEST_F(RegistryTest, DuplicateNamesBothFiles) {
  Registry::instance().add_directory(built("good"));
  fs::copy(built("good"), folder_ / "copy", fs::copy_options::recursive);
  EXPECT_THAT(
      user_error([&] { Registry::instance().add_directory(folder_.string()); }),
      Names("batcher 'test_good'", "twice", built("good/test_good/test_good.so"), "copy/test_good/test_good.so"));
}

TEST_F(RegistryTest, DuplicateInOneFolder) {
  write("a/plugin.toml", manifest("test_twin", "sync"));
  write("b/plugin.toml", manifest("test_twin", "sync"));
  EXPECT_THAT(user_error([&] { Registry::instance().add_directory(folder_.string()); }),
              Names("sync 'test_twin'", "twice"));
}

TEST_F(RegistryTest, SameFolderTwiceIsNoDuplicate) {
  Registry::instance().add_directory(built("good"));
  EXPECT_NO_THROW(Registry::instance().add_directory(built("good")));
  fs::create_directory_symlink(built("good"), folder_ / "link");
  EXPECT_NO_THROW(Registry::instance().add_directory((folder_ / "link").string()));
}

TEST_F(RegistryTest, OneNameInTwoKindsIsNoDuplicate) {
  write("a/plugin.toml", manifest("test_twin_kinds", "sync"));
  write("b/plugin.toml", manifest("test_twin_kinds", "model"));
  EXPECT_NO_THROW(Registry::instance().add_directory(folder_.string()));
}

TEST_F(RegistryTest, NamesThatAreBuiltInAreRefused) {
  for (const auto& [kind, name] :
       {std::pair{"loss", "full_softmax"}, {"optimizer", "adam"}, {"schedule", "cosine"}, {"codec", "fp16"}}) {
    write(str(kind, "/plugin.toml"), manifest(name, kind));
    EXPECT_THAT(user_error([&] { Registry::instance().add_directory((folder_ / kind).string()); }),
                Names(str(kind, " '", name, "'"), str("/", kind, "/", name, ".so"), "built into lmx"));
  }
  // The same name of another kind is free.
  write("batcher/plugin.toml", manifest("adam", "batcher"));
  EXPECT_NO_THROW(Registry::instance().add_directory((folder_ / "batcher").string()));
}

TEST_F(RegistryTest, UnknownNameSuggestsAndLists) {
  Registry::instance().add_directory(built("good"));
  EXPECT_THAT(user_error([&] { Registry::instance().find(PluginKind::batcher, "test_goood"); }),
              Names("'test_goood'", "'test_good'?", "there are:"));
}

TEST_F(RegistryTest, ComponentErrorsNameTheRecipesLine) {
  const auto error = [](const std::string& yaml) {
    return user_error([&] { Registry::instance().find(PluginKind::batcher, parse_yaml(yaml, "r.yaml"), "batcher"); });
  };
  Registry::instance().add_directory(built("good"));
  EXPECT_THAT(error("name: test_goood"), Names("r.yaml:1:7", "'test_good'?"));
  EXPECT_THAT(error("length: 3"), Names("'batcher.name'", "batcher plugin"));
  EXPECT_THAT(error("name: [a]"), Names("'batcher.name'", "batcher plugin"));
  EXPECT_THAT(error("test_good"), Names("'name'", "batcher plugin", "'test_good'"));
}

TEST_F(RegistryTest, MissingFolderIsAnError) {
  EXPECT_THAT(user_error([&] { Registry::instance().add_directory((folder_ / "none").string()); }),
              EndsWith("none is no directory"));
}

TEST_F(RegistryTest, AFolderWithoutPluginsIsAnError) {
  fs::create_directories(folder_ / "a/b/c/d");
  write("a/b/c/d/plugin.toml", manifest("test_too_deep", "sync"));
  EXPECT_THAT(user_error([&] { Registry::instance().add_directory(folder_.string()); }),
              HasSubstr("contains no plugin.toml"));
}

TEST_F(RegistryTest, PluginPathIsSearched) {
  write("x/plugin.toml", manifest("test_from_path", "model"));
  setenv("LMX_PLUGIN_PATH", str(":", (folder_ / "x").string(), ":").c_str(), 1);
  Registry::instance().add_default_directories();
  unsetenv("LMX_PLUGIN_PATH");
  bool found = false;
  for (const PluginInfo& info : Registry::instance().list()) found = found || info.name == "test_from_path";
  EXPECT_TRUE(found);
}

TEST_F(RegistryTest, MissingFolderInPluginPathIsNamed) {
  const std::string none = (folder_ / "none").string();
  setenv("LMX_PLUGIN_PATH", none.c_str(), 1);
  const std::string text = user_error([] { Registry::instance().add_default_directories(); });
  unsetenv("LMX_PLUGIN_PATH");
  EXPECT_EQ(text, "[plugin] LMX_PLUGIN_PATH: " + none + " is no directory");
}

TEST_F(RegistryTest, FullComponentFillsDefaultsAndKeepsNameFirst) {
  Registry::instance().add_directory(built("good"));
  const Node node = parse_yaml("length: 7\nname: test_good\n", "r.yaml");
  const Node full = full_component(PluginKind::batcher, node, "batcher");
  EXPECT_THAT(full.keys(), ::testing::ElementsAre("name", "length", "order", "explode"));
  EXPECT_EQ(full.find("name")->text, "test_good");
  EXPECT_EQ(full.find("length")->text, "7");
  EXPECT_EQ(full.find("order")->text, "corpus");
}

TEST_F(RegistryTest, FullComponentRefusesWhatThePluginDoesNotKnow) {
  Registry::instance().add_directory(built("good"));
  const auto error = [](const std::string& yaml) {
    return user_error([&] { full_component(PluginKind::batcher, parse_yaml(yaml, "r.yaml"), "batcher"); });
  };
  EXPECT_THAT(error("name: test_good\nlenght: 7\n"), Names("r.yaml:2:", "'length'?"));
  EXPECT_THAT(error("name: test_good\nlength: many\n"), Names("r.yaml:2:9"));
  EXPECT_THAT(error("name: test_good\norder: rand\n"), Names("random"));
}

TEST_F(RegistryTest, FieldsAreDescribed) {
  const std::vector<FieldInfo> fields = good().descriptor->fields();
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[0].name, "length");
  EXPECT_EQ(fields[0].default_text, "35");
  EXPECT_EQ(fields[0].help, "tokens of a sequence");
}

// plugin.toml: every way in which it can be wrong, and which folders are searched.

using ManifestTest = PluginTest;

std::string add_error(const std::filesystem::path& directory) {
  return user_error([&] { Registry::instance().add_directory(directory.string()); });
}

TEST_F(ManifestTest, SyntaxErrorNamesLineAndColumn) {
  const std::string file = write("a/plugin.toml", "name = \"a\"\nkind = \n");
  EXPECT_THAT(add_error(folder_), Names(file + ":2:"));
}

TEST_F(ManifestTest, DuplicateKey) {
  write("a/plugin.toml", "name = \"a\"\nname = \"b\"\n");
  EXPECT_THAT(add_error(folder_), Names("plugin.toml:2:"));
}

TEST_F(ManifestTest, MissingKey) {
  write("a/plugin.toml", "name = \"a\"\nkind = \"model\"\nversion = \"1\"\nsummary = \"s\"\n");
  EXPECT_THAT(add_error(folder_), Names("'licence'", "missing"));
}

TEST_F(ManifestTest, UnknownKeyNamesTheNearest) {
  write("a/plugin.toml", manifest("a", "model") + "licens = \"x\"\n");
  EXPECT_THAT(add_error(folder_), Names("plugin.toml:6:1:", "'licens'", "'licence'?"));
}

TEST_F(ManifestTest, ValueOfAnotherType) {
  write("a/plugin.toml", "name = \"a\"\nkind = \"model\"\nversion = 1\nlicence = \"MIT\"\nsummary = \"s\"\n");
  EXPECT_THAT(add_error(folder_), Names("'version'", "empty"));
}

TEST_F(ManifestTest, EmptyValue) {
  write("a/plugin.toml", "name = \"a\"\nkind = \"model\"\nversion = \"1\"\nlicence = \"\"\nsummary = \"s\"\n");
  EXPECT_THAT(add_error(folder_), Names("'licence'", "empty"));
}

TEST_F(ManifestTest, UnknownKindNamesTheNearestAndAll) {
  write("a/plugin.toml", manifest("a", "bather"));
  EXPECT_THAT(add_error(folder_),
              Names("'bather'", "'batcher'?", "model, sync, batcher, comm, loss, optimizer, schedule, codec, metric"));
}

TEST_F(ManifestTest, NameThatIsNoIdentifier) {
  for (const std::string name : {"Upper", "a-b", "../x", "9a", "a b", "größe"}) {
    write("a/plugin.toml", manifest(name, "model"));
    EXPECT_THAT(add_error(folder_), Names("'" + name + "'", "plugin name"));
  }
}

TEST_F(ManifestTest, BadFolderAddsNoneOfItsPlugins) {
  write("a/plugin.toml", manifest("test_before_bad", "model"));
  write("b/plugin.toml", "nonsense");
  add_error(folder_);
  for (const PluginInfo& info : Registry::instance().list()) EXPECT_NE(info.name, "test_before_bad");
}

TEST_F(ManifestTest, FoundInTheFolderItselfAndTwoLevelsBelow) {
  write("plugin.toml", manifest("test_level_0", "model"));
  write("a/plugin.toml", manifest("test_level_1", "sync"));
  write("models/a/plugin.toml", manifest("test_level_2", "comm"));
  write("models/a/deep/plugin.toml", manifest("test_level_3", "model"));
  Registry::instance().add_directory(folder_.string());
  std::vector<std::string> names;
  for (const PluginInfo& info : Registry::instance().list()) {
    if (info.name.starts_with("test_level_")) names.push_back(info.kind + " " + info.name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("model test_level_0", "sync test_level_1", "comm test_level_2"));
}

}  // namespace
}  // namespace lmx
