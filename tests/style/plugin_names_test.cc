// The core contains no name of a plugin (docs/architecture.md): its messages ask the registry, name the component that
// they are about, or state the fact without a name. This test finds such names in the string literals of the core.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "source_files.h"

namespace lmx_style {
namespace {

using Names = std::set<std::string>;

// Names of plugins that are also English words, terms of lmx or kinds of the core's own components; the test cannot
// distinguish these uses.
const std::map<std::string, std::string> kWords{{"unique", "an English word, and a flag of row-sparse gradients"},
                                                {"virtual", "virtual ranks are a term"},
                                                {"transformer", "the name of an architecture"},
                                                {"one_bit", "a kind of codec"}};

struct AllowedName {
  std::string file, name, reason;
};
const std::vector<AllowedName> kAllowedNames{
    {"core/comm/launch.cc", "mpi", "this room cannot ask the registry, and the message gives the usual remedy"},
    {"core/comm/launch.cc", "gloo", "this room cannot ask the registry, and the message gives the usual remedy"},
    {"core/recipe/comm_config.cc", "mpi", "the message gives the usual remedy"},
    {"core/recipe/recipe.cc", "mpi", "the help explains a setting by the communicators of lmx"},
    {"core/recipe/recipe.cc", "allreduce", "the strategy of a recipe without `sync`"},
    {"core/recipe/sync_rules.cc", "allreduce", "the example of a rule in messages is the default of `sync`"},
    {"core/model/recurrent.cc", "mlstm", "the help gives names of parameters as examples"},
    {"core/optim/clip.cc", "lstm", "the help gives names of parameters as examples"},
    {"core/sync/server/server_config.cc", "mpi", "the help explains a setting by the communicators of lmx"},
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
  std::vector<bool> used(kAllowedNames.size());
  for (const SourceFile& file : source_files({"core"}, kCode)) {
    if (file.path.starts_with("core/include/")) continue;  // examples for the authors of plugins
    for (size_t i = 0; i < file.lines.size(); ++i)
      for (const std::string& name : names_in(file.lines[i], names)) {
        bool excepted = false;
        for (size_t e = 0; e < kAllowedNames.size(); ++e)
          if (kAllowedNames[e].file == file.path && kAllowedNames[e].name == name) used[e] = excepted = true;
        EXPECT_TRUE(excepted) << file.path << ":" << i + 1 << ": names the plugin '" << name << "'";
      }
  }
  for (size_t e = 0; e < kAllowedNames.size(); ++e)
    EXPECT_TRUE(used[e]) << kAllowedNames[e].file << ": the exception for '" << kAllowedNames[e].name
                         << "' is not needed";
}

TEST(PluginNames, RulesCatchWhatTheyShould) {
  const auto check = [](const std::string& line) { return names_in(line, {"tbptt", "param_server"}); };
  using Found = std::vector<std::string>;
  EXPECT_EQ(check("  throw UserError(\"[param_server] the checkpoint lacks \" + key);"), Found{"param_server"});
  EXPECT_EQ(check("    \"a batcher of sequences: random or tbptt\"));"), Found{"tbptt"});
  EXPECT_EQ(check("f(\"\\\"tbptt\\\"\", tbptt, \"x\");"), Found{"tbptt"});
  EXPECT_EQ(check("  // \"tbptt\""), Found{});
  EXPECT_EQ(check("int x;  // \"tbptt\""), Found{});
  EXPECT_EQ(check("#include \"lmx/param_server.h\""), Found{});
  EXPECT_EQ(check("tbptt(\"tbptts\");"), Found{});
}

}  // namespace
}  // namespace lmx_style
