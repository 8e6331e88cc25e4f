// What belongs to a component stays in it: the core contains no name of a plugin, and no key of a component. The rest
// of lmx asks the component (Batcher::plan(), traits, ...), so that a plugin may name its keys as it likes. The tests
// find code that reads such a key by its name.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "source_files.h"

namespace lmx_style {
namespace {

using Names = std::set<std::string>;

// Folders whose files define components, with the keys that these read from their own subtree.
const std::vector<std::string> kComponents{
    "plugins/",          "core/model/",     "core/optim/", "core/nn/", "core/schedule/schedules.",
    "core/sync/server/", "core/comm/codec/"};
// These files read any plugin's keys, or are no code of lmx itself.
const std::vector<std::string> kOutside{"tools/conformance/", "/templates/"};

Exceptions g_allowed_keys{
    {"core/recipe/comm_config.cc", "ranks", "every communicator counts its ranks by this key"},
    {"tools/app/jobs/launcher.cc", "ranks", "every communicator counts its ranks by this key"},
    {"tools/app/export/export_huggingface.cc", "bias", "losses are built in; the key is named in a message, not read"},
};

struct Found {
  size_t line;  // from 1
  std::string key;
};

bool below(const std::string& path, const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& f) { return path.starts_with(f); });
}

bool outside(const std::string& path) {
  return std::any_of(kOutside.begin(), kOutside.end(),
                     [&](const std::string& part) { return path.find(part) != std::string::npos; });
}

// A line and the next one without indents and comments, because an argument may be on the next line. Empty for a
// comment.
std::string with_next(const std::vector<std::string>& lines, size_t i) {
  const auto text = [&](size_t n) {
    const std::string line = n < lines.size() ? lines[n].substr(0, lines[n].find("  // ")) : "";
    const size_t begin = line.find_first_not_of(' ');
    return begin == std::string::npos || line.compare(begin, 2, "//") == 0 ? "" : line.substr(begin);
  };
  const std::string own = text(i);
  return own.empty() ? "" : own + text(i + 1);
}

// Calls `each(key)` for the first group of each match that begins in line `i`.
template <class Each>
void matches(const std::vector<std::string>& lines, size_t i, const std::regex& pattern, Each&& each) {
  const std::string text = with_next(lines, i);
  const std::string line = lines[i].substr(0, lines[i].find("  // "));
  const size_t own = text.empty() ? 0 : line.size() - line.find_first_not_of(' ');
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    if (static_cast<size_t>(match->position()) < own) each(match->str(1));
}

// The keys that the configs of these files define.
Names fields_of(const std::vector<SourceFile>& files) {
  static const std::regex kField(R"re(\b(?:f|fields)\.(?:field|choice|group|required|subtree)\(\s*"(\w+)")re");
  Names names;
  for (const SourceFile& file : files)
    for (size_t i = 0; i < file.lines.size(); ++i)
      matches(file.lines, i, kField, [&](const std::string& name) { names.insert(name); });
  return names;
}

std::string last_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

// Reads of a key of `keys`: find("key"), text_at(node, "a.key"), a list of keys in a loop, and "model.key" anywhere.
std::vector<Found> reads_of(const std::vector<std::string>& lines, const Names& keys) {
  static const std::regex kRead(R"re(\b(?:find|at_path|erase|\w+_at|text_of)\((?:[^;"(){}]+,)?\s*"([\w.]+)"[,)])re");
  static const std::regex kPath(R"re("((?:model|batcher|comm|sync|loss|optimizer)\.[\w.]+)")re");
  static const std::regex kList(R"re(\bfor \((?:const )?[\w:]+[*&]? \w+ : \{((?:\s*"\w+",?)+)\}\))re");
  static const std::regex kWord(R"re("(\w+)")re");
  std::vector<Found> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto add = [&](const std::string& path) {
      const std::string key = last_of(path);
      const bool same = !found.empty() && found.back().line == i + 1 && found.back().key == key;
      if (keys.contains(key) && !same) found.push_back({i + 1, key});
    };
    matches(lines, i, kRead, add);
    matches(lines, i, kPath, add);
    matches(lines, i, kList, [&](const std::string& list) {
      for (std::sregex_iterator word(list.begin(), list.end(), kWord), end; word != end; ++word) add(word->str(1));
    });
  }
  return found;
}

// Keys of components that are not keys of the recipe itself as well.
Names private_keys() {
  std::vector<SourceFile> components, recipe;
  for (const SourceFile& file : source_files({"plugins", "core"}, kCode)) {
    if (below(file.path, kComponents)) components.push_back(file);
    if (below(file.path, {"core/recipe/recipe.", "core/data/"})) recipe.push_back(file);
  }
  Names keys = fields_of(components);
  for (const std::string& key : fields_of(recipe)) keys.erase(key);
  return keys;
}

TEST(PrivateKeys, AreReadByTheirComponentsOnly) {
  const Names keys = private_keys();
  for (const char* key : {"cells", "sequence_length", "bucket_mb", "heads", "seeds", "lr", "betas", "heartbeat_s"})
    EXPECT_TRUE(keys.contains(key)) << key;
  for (const SourceFile& file : source_files({"core", "tools"}, kCode)) {
    if (below(file.path, kComponents) || outside(file.path)) continue;
    for (const Found& read : reads_of(file.lines, keys))
      EXPECT_TRUE(g_allowed_keys.allow(file.path, read.key))
          << file.path << ":" << read.line << ": reads the key '" << read.key
          << "' of a component by its name; ask the component instead (docs/plugins.md)";
  }
  g_allowed_keys.expect_all_needed();
}

TEST(PrivateKeys, RulesCatchWhatTheyShould) {
  const auto defined = [](const std::vector<std::string>& lines) { return fields_of({{"plugins/x.cc", lines}}); };
  EXPECT_EQ(defined({"    f.field(\"cells\", cells, \"of a layer\");"}), Names{"cells"});
  EXPECT_EQ(defined({"    f.choice(", "        \"norm\", norm, {\"pre\"}, \"help\");"}), Names{"norm"});
  EXPECT_EQ(defined({"f.group(\"codec\", codec, \"x\"); f.field(\"seeds\", seeds, \"y\");"}),
            (Names{"codec", "seeds"}));
  EXPECT_EQ(defined({"// f.field(\"cells\", cells, \"of a layer\");", "record.field(\"cells\");"}), Names{});

  const auto read = [](const std::vector<std::string>& lines) {
    std::vector<std::string> keys;
    for (const Found& found : reads_of(lines, {"cells", "heads", "lr"})) keys.push_back(found.key);
    return keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(read({"const Node* lr = full.find(\"lr\");"}), Keys{"lr"});
  EXPECT_EQ(read({"const Node* lr = tree.at_path(\"optimizer.lr\");"}), Keys{"lr"});
  EXPECT_EQ(read({"shape.heads = integer_at(model, \"heads\");"}), Keys{"heads"});
  EXPECT_EQ(read({"shape.heads = integer_at(", "    model, \"heads\");"}), Keys{"heads"});
  EXPECT_EQ(read({"text_at(*model, \"cells\") + real_at(model, \"lr\")"}), (Keys{"cells", "lr"}));
  EXPECT_EQ(read({"constexpr const char* kPath = \"model.cells\";"}), Keys{"cells"});
  EXPECT_EQ(read({"for (const char* key : {\"layers\", \"cells\"})"}), Keys{"cells"});
  EXPECT_EQ(read({"for (const char* key : {\"layers\",", "                        \"cells\"})"}), Keys{"cells"});
  EXPECT_EQ(read({"model.find(\"name\");  // find(\"lr\")", "// model.find(\"cells\")"}), Keys{});
  EXPECT_EQ(read({"throw UserError(\"choose model.cells\");", "json[\"cells\"] = 3;", "text.find(cells);"}), Keys{});
}

// The core contains no name of a plugin (docs/architecture.md): its messages ask the registry, name the component that
// they are about, or state the fact without a name. This test finds such names in the string literals of the core.

// Names of plugins that are also English words, terms of lmx or kinds of the core's own components; the test cannot
// distinguish these uses.
const std::map<std::string, std::string> kWords{{"unique", "an English word, and a flag of row-sparse gradients"},
                                                {"virtual", "virtual ranks are a term"},
                                                {"transformer", "the name of an architecture"},
                                                {"zero", "a number"},
                                                {"one_bit", "a kind of codec"}};

Exceptions g_allowed_names{
    {"core/comm/launch.cc", "mpi", "this room cannot ask the registry, and the message gives the usual remedy"},
    {"core/comm/launch.cc", "gloo", "this room cannot ask the registry, and the message gives the usual remedy"},
    {"core/recipe/comm_config.cc", "mpi", "the message gives the usual remedy"},
    {"core/recipe/recipe.cc", "mpi", "the help explains a setting by the communicators of lmx"},
    {"core/recipe/recipe.cc", "allreduce", "the strategy of a recipe without `sync`"},
    {"core/recipe/sync_rules.cc", "allreduce", "the example of a rule in messages is the default of `sync`"},
    {"core/model/recurrent.cc", "mlstm", "the help gives names of parameters as examples"},
    {"core/optim/clip.cc", "lstm", "the help gives names of parameters as examples"},
    {"core/sync/server/server_strategy.cc", "mpi", "the help explains a setting by the communicators of lmx"},
    {"core/sync/server/server_link.cc", "mpi", "this room cannot ask the registry; the message gives the remedy"},
};

Names plugin_names() {
  Names names;
  for (const SourceFile& file : source_files({"plugins"}, {"plugin.toml"}))
    for (const std::string& line : file.lines)
      if (line.starts_with("name = \"")) names.insert(line.substr(8, line.rfind('"') - 8));
  for (const auto& [word, reason] : kWords) names.erase(word);
  return names;
}

// The names that are words of a string literal of the line. Lines of comments and #include lines have none.
std::vector<std::string> names_in(const std::string& line, const Names& names) {
  static const std::regex kLiteral(R"re("((?:[^"\\]|\\.)*)")re"), kWord(R"re(\w+)re");
  std::vector<std::string> found;
  const size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos || line.compare(begin, 2, "//") == 0 || line[begin] == '#') return found;
  const std::string code = line.substr(0, line.find("  // "));
  for (std::sregex_iterator literal(code.begin(), code.end(), kLiteral), end; literal != end; ++literal) {
    const std::string text = literal->str(1);
    for (std::sregex_iterator word(text.begin(), text.end(), kWord); word != end; ++word)
      if (names.contains(word->str())) found.push_back(word->str());
  }
  return found;
}

TEST(PluginNames, AreInNoTextOfTheCore) {
  const Names names = plugin_names();
  for (const char* name : {"lstm", "param_server", "token_budget", "tbptt", "mpi"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (const SourceFile& file : source_files({"core"}, kCode)) {
    if (file.path.starts_with("core/include/")) continue;  // examples for the authors of plugins
    for (size_t i = 0; i < file.lines.size(); ++i)
      for (const std::string& name : names_in(file.lines[i], names))
        EXPECT_TRUE(g_allowed_names.allow(file.path, name))
            << file.path << ":" << i + 1 << ": names the plugin '" << name << "'";
  }
  g_allowed_names.expect_all_needed();
}

TEST(PluginNames, RulesCatchWhatTheyShould) {
  const auto check = [](const std::string& line) { return names_in(line, {"tbptt", "param_server"}); };
  using Words = std::vector<std::string>;
  EXPECT_EQ(check("  throw UserError(\"[param_server] the checkpoint lacks \" + key);"), Words{"param_server"});
  EXPECT_EQ(check("    \"a batcher of sequences: random or tbptt\"));"), Words{"tbptt"});
  EXPECT_EQ(check("f(\"\\\"tbptt\\\"\", tbptt, \"x\");"), Words{"tbptt"});
  EXPECT_EQ(check("  // \"tbptt\""), Words{});
  EXPECT_EQ(check("int x;  // \"tbptt\""), Words{});
  EXPECT_EQ(check("#include \"lmx/param_server.h\""), Words{});
  EXPECT_EQ(check("tbptt(\"tbptts\");"), Words{});
}

}  // namespace
}  // namespace lmx_style
