// Runs the cases of a conformance suite of Hydra-style composition, when LMX_CONFIG_CASES names its file: files and
// arguments in, the composed tree or an error out. Sweeps, run folders and schemas belong to other parts of lmx.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "lmx/config.h"
#include "test_files.h"

namespace lmx {
namespace {

// Cases where lmx differs on purpose.
const std::map<std::string, std::string>& deviations() {
  static const std::map<std::string, std::string> list = {
      {"yaml.bool_words", "yes/no/on/off stay text; a boolean field refuses them"},
      {"yaml.flow_missing_space", "a key without a value is an error"},
      {"override.utf8", "letters beyond ASCII need no quotes"},
      {"override.nested_interp_unquoted", "braces are matched, so no quotes are needed"},
      {"interp.hydra_job", "the run's own values are no part of composition"},
  };
  return list;
}

bool is_composition(const Node& c) {
  const std::string area = c.find("id")->text.substr(0, c.find("id")->text.find('.'));
  if (area == "sweep" || area == "run" || area == "schema" || c.find("schema")) return false;
  for (const Node& arg : c.find("args")->items)
    if (arg.text.starts_with("-")) return false;
  return true;
}

// A scalar's value with its type: 1, 1.0, '1' and true all differ, 1e3 and 1000.0 do not.
std::string typed_text(const Node& n) {
  if (n.kind == Node::Kind::null) return "null";
  if (n.kind != Node::Kind::scalar) return n.kind == Node::Kind::list ? "[]" : "{}";
  if (!n.quoted) {
    if (const auto i = parse_int(n.text)) return "int " + std::to_string(*i);
    if (const auto d = parse_double(n.text)) return "float " + std::to_string(*d);
    if (const auto b = parse_bool(n.text)) return *b ? "true" : "false";
  }
  return "text " + n.text;
}

bool equal(const Node& a, const Node& b) {
  if (a.items.size() != b.items.size() || a.entries.size() != b.entries.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equal(a.items[i], b.items[i])) return false;
  for (const auto& [key, value] : a.entries)
    if (!b.find(key) || !equal(value, *b.find(key))) return false;
  return typed_text(a) == typed_text(b);
}

std::string check_error(const Node& expected, const std::string& message) {
  for (const Node& mention : expected.find("mentions")->items)
    if (message.find(mention.text) == std::string::npos) return "does not mention '" + mention.text + "': " + message;
  return message.find('\n') == std::string::npos ? "" : "more than one line: " + message;
}

std::string check_case(const Node& c, const std::string& recipe) {
  const Node& expect = *c.find("expect");
  ComposeOptions options;
  options.typed = false;
  for (const Node& arg : c.find("args")->items) options.overrides.push_back(arg.text);
  const Node* error = expect.find("error");
  try {
    const Node resolved = compose(recipe, options);
    options.resolve = false;
    const Node composed = compose(recipe, options);
    if (error && c.find("access")) check_missing(composed);
    if (error) return "composed, but an error was expected: " + to_json(composed);
    if (!equal(composed, *expect.find("config"))) return "got " + to_json(composed);
    const Node* wanted = expect.find("resolved");
    if (wanted && !equal(resolved, *wanted)) return "resolved to " + to_json(resolved);
    return "";
  } catch (const UserError& e) {
    return error ? check_error(*error, e.what()) : std::string("error: ") + e.what();
  }
}

TEST(Conformance, CompositionCases) {
  const char* path = std::getenv("LMX_CONFIG_CASES");
  if (!path) GTEST_SKIP() << "LMX_CONFIG_CASES names no suite";
  const Node suite = parse_yaml_file(path);
  size_t run = 0;
  for (const Node& c : suite.find("cases")->items) {
    const std::string& id = c.find("id")->text;
    if (!is_composition(c) || deviations().contains(id)) continue;
    const test::TempFolder folder;
    for (const auto& [name, content] : c.find("files")->entries) folder.write(name, content.text);
    const Node* env = c.find("env");
    if (env)
      for (const auto& [name, value] : env->entries) setenv(name.c_str(), value.text.c_str(), 1);
    EXPECT_EQ(check_case(c, folder.path("conf/config.yaml")), "") << id << ": " << c.find("title")->text;
    if (env)
      for (const auto& entry : env->entries) unsetenv(entry.first.c_str());
    ++run;
  }
  EXPECT_GT(run, 100u);
}

}  // namespace
}  // namespace lmx
