#include "cases/case_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>

#include "app/compose/compose.h"
#include "app/compose/override.h"
#include "app/sweep/grid.h"
#include "cases/command_line.h"
#include "config/messages.h"
#include "temp_folder.h"

namespace lmx::test {
namespace {

using config::is_missing;
using config::join;
using config::join_path;
using config::split;

// One map of the schema: types of its fields, and maps below it.
struct Level {
  std::vector<std::pair<std::string, std::string>> types;
  std::vector<std::pair<std::string, std::unique_ptr<Level>>> below;

  Level& child(const std::string& name) {
    for (auto& [key, level] : below)
      if (key == name) return *level;
    return *below.emplace_back(name, std::make_unique<Level>()).second;
  }
  // For lmx's reader: every key is known, values stay unchanged.
  void fields(Fields& f) {
    for (const auto& entry : types) {
      Node kept;
      f.subtree(entry.first.c_str(), kept, "");
    }
    for (auto& [name, level] : below) f.group(name.c_str(), *level, "");
  }
};

// "list[int]" and "list" -> "int".
std::string inner(const std::string& type, const std::string& outer) {
  if (!type.starts_with(outer + "[") || !type.ends_with("]")) return "";
  return type.substr(outer.size() + 1, type.size() - outer.size() - 2);
}

// A single field of a type that is known only now.
struct Field {
  std::string name, type;
  int64_t whole = 0;
  double number = 0;
  bool flag = false;
  std::string text;
  std::vector<std::string> texts;
  Node node;

  void fields(Fields& f) {
    const char* n = name.c_str();
    if (type == "int") return f.field(n, whole, "");
    if (type == "float") return f.field(n, number, "");
    if (type == "bool") return f.field(n, flag, "");
    if (type == "str") return f.field(n, text, "");
    if (type == "list") return f.field(n, texts, "");
    if (const std::string allowed = inner(type, "enum"); !allowed.empty())
      return f.choice(n, text, split(allowed, ','), "");
    throw UserError("the case's schema has an unknown type '" + type + "'");
  }
};

Node read_field(const std::string& type, const Node& node, const std::string& path) {
  const size_t dot = path.rfind('.');
  const std::string name = path.substr(dot == std::string::npos ? 0 : dot + 1);
  Node parent = Node::map(node.mark);
  parent.set(name, node);
  ConfigReader reader(parent, dot == std::string::npos ? "" : path.substr(0, dot));
  Field field{name, type, 0, 0, false, "", {}, {}};
  field.fields(reader.fields());
  reader.finish();
  return *write_config(field).find(name);
}

struct AnyMap {
  void fields(Fields&) {}
};

Node convert(const std::string& type, const Node& node, const std::string& path) {
  const bool text = node.kind == Node::Kind::scalar;
  if (type == "any" || (text && (node.text == "???" || node.text.find("${") != std::string::npos))) return node;
  if (const std::string t = inner(type, "optional"); !t.empty())
    return node.kind == Node::Kind::null ? node : convert(t, node, path);
  Node result = node;
  if (const std::string t = inner(type, "list"); !t.empty()) {
    if (node.kind != Node::Kind::list) return read_field("list", node, path);
    for (size_t i = 0; i < node.items.size(); ++i) result.items[i] = convert(t, node.items[i], str(path, ".", i));
    return result;
  }
  if (const std::string t = inner(type, "dict"); !t.empty()) {
    if (node.kind == Node::Kind::null)
      throw UserError(to_string(node.mark) + ": " + path + ": expected a map, got null");
    if (node.kind != Node::Kind::map) read_config<AnyMap>(node, path);
    for (auto& [key, value] : result.entries) value = convert(t, value, join_path(path, key));
    return result;
  }
  return read_field(type, node, path);
}

void fill_and_convert(const Level& level, Node& node, const std::string& path) {
  for (const auto& [name, type] : level.types) {
    const Node* there = node.find(name);
    node.set(name, there ? convert(type, *there, join_path(path, name)) : Node::scalar("???"));
  }
  for (const auto& [name, below] : level.below) {
    const std::string full = join_path(path, name);
    if (!node.find(name)) node.set(name, Node::map());
    Node& child = *node.find(name);
    if (child.kind == Node::Kind::null)
      throw UserError(to_string(child.mark) + ": " + full + ": expected a map, got null");
    if (child.kind == Node::Kind::map) fill_and_convert(*below, child, full);
  }
}

// What is not given yet is no concern of the check for unknown keys.
void drop_missing(Node& node) {
  std::erase_if(node.entries, [](const auto& entry) { return is_missing(entry.second); });
  for (auto& entry : node.entries) drop_missing(entry.second);
}

}  // namespace

// `composed` with every value converted to its type, and `???` where the schema has a field that no file gives. Values
// that are still interpolations are left alone. UserError: a wrong type, an unknown key.
Node apply_schema(const Node& schema, const Node& composed) {
  Level root;
  for (const auto& [path, type] : schema.entries) {
    Level* level = &root;
    std::vector<std::string> parts = split(path, '.');
    for (size_t i = 0; i + 1 < parts.size(); ++i) level = &level->child(parts[i]);
    level->types.emplace_back(parts.back(), type.text);
  }
  Node given = composed;
  drop_missing(given);
  ConfigReader reader(given, "");
  root.fields(reader.fields());
  reader.finish();
  Node result = composed;
  fill_and_convert(root, result, "");
  return result;
}

}  // namespace lmx::test

extern char** environ;

namespace lmx::test {
namespace {

// Cases of the suite whose outcome lmx does not share, whatever their stance; docs/configuration.md gives the reasons.
const std::map<std::string, std::string>& deviations() {
  static const std::map<std::string, std::string> list = {
      {"sweep.str_choice", "str() in a sweep makes texts; Hydra loses the type on the way to the job"},
      {"yaml.flow_missing_space", "{b:1} is an error, as b: 1 must have been meant"},
  };
  return list;
}

std::string kind_of(const Node& n) {
  switch (n.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::list:
      return "list";
    case Node::Kind::map:
      return "map";
    case Node::Kind::scalar:
      break;
  }
  if (n.quoted) return "text";
  return parse_int(n.text) ? "int" : parse_double(n.text) ? "float" : parse_bool(n.text) ? "bool" : "text";
}

bool same_number(double a, double b) {
  if (!std::isfinite(a - b)) return a == b || (std::isnan(a) && std::isnan(b));
  return std::abs(a - b) <= 1e-15 * std::max(std::abs(a), std::abs(b));  // the last bit of a range's steps
}

// Equal with their types: 1, 1.0, '1' and true all differ.
bool equal(const Node& a, const Node& b) {
  const std::string kind = kind_of(a);
  if (kind != kind_of(b) || a.items.size() != b.items.size() || a.entries.size() != b.entries.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equal(a.items[i], b.items[i])) return false;
  for (const auto& [key, value] : a.entries)
    if (!b.find(key) || !equal(value, *b.find(key))) return false;
  if (kind == "int") return *parse_int(a.text) == *parse_int(b.text);
  if (kind == "float") return same_number(*parse_double(a.text), *parse_double(b.text));
  if (kind == "bool") return *parse_bool(a.text) == *parse_bool(b.text);
  return a.text == b.text;
}

// RunError: they differ. The message shows the first value that differs between two maps.
void expect_equal(const Node& got, const Node& wanted, const std::string& what) {
  for (const auto& [key, value] : wanted.entries)
    if (const Node* there = got.find(key)) expect_equal(*there, value, str(what, ": ", key));
  if (!equal(got, wanted)) throw RunError(str(what, " is ", to_json(got), ", expected ", to_json(wanted)));
}

class Case {
 public:
  Case(const Node& node, const std::string& folder) : node_(node), expect_(*node.find("expect")) {
    std::vector<std::string> args;
    if (const Node* list = node.find("args"))
      for (const Node& arg : list->items) args.push_back(arg.text);
    line_ = read_command_line(args, folder);
    schema_ = node.find("schema");
    line_.options.typed = schema_ != nullptr;
  }

  // RunError: another outcome than the case expects. UserError: lmx refuses the command line.
  void run() const {
    if (expect_.find("jobs") || line_.multirun) return check_jobs();
    if (line_.info) return check_info();
    const Node resolved = composed(line_.options, line_.names, true),
               plain = composed(line_.options, line_.names, false);
    if (const Node* key = node_.find("access")) {
      const Node* there = plain.at_path(key->text);
      if (!there || is_missing(*there)) check_missing(plain);
    }
    if (const Node* text = expect_.find("stdout_yaml")) {
      const Node* shown = (line_.resolve ? resolved : plain).at_path(line_.package);
      return expect_equal(shown ? *shown : Node(), parse_yaml(text->text, "stdout_yaml"), "what is printed");
    }
    check_trees(expect_, plain, resolved);
    if (const Node* name = expect_.find("override_dirname"))
      expect_equal(Node::string(app::override_dirname(line_.options.overrides, line_.dirname)),
                   Node::string(name->text), "override_dirname");
  }

 private:
  Node composed(const app::ComposeOptions& given, const app::RunNames& names, bool resolve) const {
    app::ComposeOptions options = given;
    options.resolve = resolve;
    const Node tree = app::compose_run(line_.recipe, options, names);
    return schema_ ? apply_schema(*schema_, tree) : tree;
  }

  void check_trees(const Node& expect, const Node& plain, const Node& resolved) const {
    if (const Node* wanted = expect.find("config")) expect_equal(plain, *wanted, "the config");
    if (const Node* wanted = expect.find("resolved")) expect_equal(resolved, *wanted, "the resolved config");
    const Node* patterns = expect.find("resolved_regex");
    for (const auto& [key, pattern] : patterns ? patterns->entries : Node().entries) {
      const Node* value = resolved.at_path(key);
      if (!value || !std::regex_search(value->text, std::regex(pattern.text)))
        throw RunError(str(key, " is '", value ? value->text : "absent", "', which does not match ", pattern.text));
    }
  }

  void check_jobs() const {
    app::ComposeOptions options = line_.options;
    options.overrides = line_.sweep_params;
    options.overrides.insert(options.overrides.end(), line_.options.overrides.begin(), line_.options.overrides.end());
    const std::vector<std::vector<std::string>> points = app::sweep_grid(app::sweep_axes(line_.recipe, options));
    std::vector<std::pair<Node, Node>> trees;  // all of them before any is looked at
    for (size_t i = 0; i < points.size(); ++i) {
      options.overrides = points[i];
      const app::RunNames names{line_.names.job_name, static_cast<int64_t>(i)};
      Node resolved = composed(options, names, true);
      trees.emplace_back(composed(options, names, false), std::move(resolved));
    }
    const Node* jobs = expect_.find("jobs");
    if (!jobs) return;
    if (points.size() != jobs->items.size()) throw RunError(str(points.size(), " jobs, expected ", jobs->items.size()));
    for (size_t i = 0; i < points.size(); ++i) {
      check_overrides(points[i], *jobs->items[i].find("overrides"));
      check_trees(jobs->items[i], trees[i].first, trees[i].second);
    }
  }

  // Equal as overrides, however they are written: x='a' and x=a.
  static void check_overrides(const std::vector<std::string>& got, const Node& wanted) {
    bool same = got.size() == wanted.items.size();
    for (size_t i = 0; same && i < got.size(); ++i) {
      const app::Override a = app::parse_override(got[i]), b = app::parse_override(wanted.items[i].text);
      same = a.full_key() == b.full_key() && a.value.has_value() == b.value.has_value() &&
             (!a.value || equal(*a.value, *b.value));
    }
    if (!same) throw RunError(str("a job's overrides are ", join(got), ", expected ", to_json(wanted)));
  }

  // The wording is free; every group and option that Hydra names has to be there.
  void check_info() const {
    std::string shown;
    for (const app::MergedFile& file : app::merged_files(line_.recipe, line_.options))
      shown += str(file.package, " ", file.file, "\n");
    const Node* text = expect_.find("stdout");
    if (!text) throw RunError("the case expects no stdout");
    const std::regex word("[a-z][a-z0-9]+");
    for (auto it = std::sregex_iterator(text->text.begin(), text->text.end(), word); it != std::sregex_iterator();
         ++it) {
      const std::string w = it->str();
      if (w != "root" && w != "self" && w != "null" && w != "hydra" && shown.find(w) == std::string::npos)
        throw RunError(str("'", w, "' is not in\n", shown));
    }
  }

  const Node& node_;
  const Node& expect_;
  const Node* schema_ = nullptr;
  CommandLine line_;
};

void set_environment(const Node& c) {
  std::vector<std::string> old;
  for (char** e = environ; *e; ++e)
    if (std::string_view(*e).starts_with("LMX_TEST_")) old.emplace_back(*e, std::string_view(*e).find('='));
  for (const std::string& name : old) unsetenv(name.c_str());
  if (const Node* env = c.find("env"))
    for (const auto& [name, value] : env->entries) setenv(name.c_str(), value.text.c_str(), 1);
}

// "" when the message says what the case wants.
std::string wrong_message(const Node& error, const std::string& message) {
  const Node* mentions = error.find("mentions");
  for (const Node& mention : mentions ? mentions->items : std::vector<Node>())
    if (message.find(mention.text) == std::string::npos) return str("does not mention '", mention.text, "': ", message);
  return "";
}

CaseResult run_case(const Node& c) {
  using Verdict = CaseResult::Verdict;
  const auto text_of = [&](const char* key) { return c.find(key) ? c.find(key)->text : std::string(); };
  CaseResult result{text_of("id"), text_of("title"), "", Verdict::passed};
  const std::string stance = text_of("stance");
  const lmx_test::TempFolder folder;
  for (const auto& [name, content] : c.find("files")->entries) folder.write(name, content.text);
  set_environment(c);
  const Node* error = c.find("expect")->find("error");
  bool refused = false;
  try {
    Case(c, folder.path("")).run();
    if (error) result.text = "composed, but an error was expected";
  } catch (const UserError& e) {
    refused = true;
    result.text = error ? wrong_message(*error, e.what()) : str("refused: ", folder.shorten(e.what()));
  } catch (const RunError& e) {
    result.text = e.what();
  } catch (const std::exception& e) {
    result.text = str("an error of lmx's own, not of the case: ", e.what());
  }
  if (result.text.empty()) return result;
  const bool stricter = stance == "stricter" && refused && !error;
  const bool extended = stance == "extension" && error && !refused;
  const auto known = deviations().find(result.id);
  result.verdict = stricter || extended || known != deviations().end() ? Verdict::differs : Verdict::failed;
  if (known != deviations().end()) result.text = known->second;
  return result;
}

}  // namespace

std::vector<CaseResult> run_case_file(const std::string& path) {
  const Node suite = parse_yaml_file(path);
  const Node* cases = suite.find("cases");
  if (!cases || cases->kind != Node::Kind::list) throw UserError(path + ": has no list `cases`");
  std::vector<CaseResult> results;
  for (const Node& c : cases->items) {
    for (const char* key : {"id", "files", "expect"})
      if (!c.find(key)) throw UserError(str(to_string(c.mark), ": the case has no '", key, "'"));
    results.push_back(run_case(c));
  }
  return results;
}

}  // namespace lmx::test
