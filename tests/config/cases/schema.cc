#include "cases/schema.h"

#include <map>
#include <memory>

#include "cases/text.h"

namespace lmx::test {
namespace {

// One map of the schema: types of its fields, and maps below it.
struct Level {
  std::vector<std::pair<std::string, std::string>> types;
  std::vector<std::pair<std::string, std::unique_ptr<Level>>> below;

  Level& child(const std::string& name) {
    for (auto& [key, level] : below)
      if (key == name) return *level;
    return *below.emplace_back(name, std::make_unique<Level>()).second;
  }
  // For lmx's reader: every key is known, values stay as they are.
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
