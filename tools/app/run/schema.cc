// The fields of a recipe and of all components that it names, as tables and as a JSON Schema.
#include "app/run/schema.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "config/messages.h"
#include "lmx/plugin.h"
#include "nn/losses.h"
#include "plugin/choice.h"
#include "recipe/recipe.h"
#include "schedule/schedule.h"

namespace lmx::app {
namespace {

// Kinds of which some components are built in.
struct MixedKind {
  PluginKind kind;
  const char* fallback;  // used if the recipe has no such part
};
constexpr MixedKind kMixed[] = {
    {PluginKind::loss, losses::kUsual}, {PluginKind::optimizer, ""}, {PluginKind::schedule, schedules::kUsual}};

std::string name_in(const Node& composed, const std::string& path, const char* key, const std::string& fallback) {
  const Node* part = composed.at_path(path);
  const Node* name = part ? part->find(key) : nullptr;
  return name && name->kind == Node::Kind::scalar ? name->text : fallback;
}

std::vector<std::string> without(std::vector<std::string> names, const std::string& name) {
  std::erase(names, name);
  return names;
}

SchemaPart plugin_part(PluginKind kind, const std::string& path, const std::string& name) {
  return {path, name, without(plugin_names(kind), name), Registry::instance().describe(kind, name).fields};
}

// `plugins`: names that are not built in.
SchemaPart built_in_part(const std::string& path, component::Described all, const std::vector<std::string>& plugins,
                         const std::string& name) {
  std::vector<std::string> names;
  std::vector<FieldInfo> own;
  bool found = false;
  for (auto& [known, fields] : all) {
    names.push_back(known);
    if (known != name) continue;
    own = std::move(fields);
    found = true;
  }
  names.insert(names.end(), plugins.begin(), plugins.end());
  if (!found)
    throw UserError(
        str(path, ".name: expected one of ", config::join(names), ", got '", name, "'", did_you_mean(name, names)));
  return {path, name, without(std::move(names), name), std::move(own)};
}

SchemaPart mixed_part(PluginKind kind, const std::string& path, const std::string& name) {
  const std::vector<std::string> plugins = plugin_names(kind);
  const bool plugin = std::find(plugins.begin(), plugins.end(), name) != plugins.end();
  if (!plugin) return built_in_part(path, built_in(kind), plugins, name);
  SchemaPart part = plugin_part(kind, path, name);
  for (const auto& [known, fields] : built_in(kind)) part.others.push_back(known);
  return part;
}

std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() ? std::nullopt : std::optional(value);
}

Node number_node(double value) {
  return Node::scalar(value == static_cast<double>(static_cast<int64_t>(value))
                          ? std::to_string(static_cast<int64_t>(value))
                          : config::double_text(value));
}

// Converts ">= 1", "> 0", "<= 3" or "in (0, 1]" to JSON Schema.
void add_range(Node& schema, const std::string& range) {
  if (range.starts_with("in ")) {
    const size_t comma = range.find(',');
    const auto low = number(range.substr(4)), high = number(range.substr(comma + 1));
    if (low) schema.set(range[3] == '(' ? "exclusiveMinimum" : "minimum", number_node(*low));
    if (high) schema.set("maximum", number_node(*high));
  } else if (range.starts_with(">=")) {
    schema.set("minimum", number_node(number(range.substr(2)).value_or(0)));
  } else if (range.starts_with(">")) {
    schema.set("exclusiveMinimum", number_node(number(range.substr(1)).value_or(0)));
  } else if (range.starts_with("<=")) {
    schema.set("maximum", number_node(number(range.substr(2)).value_or(0)));
  }
}

Node type_of(const std::string& type) {
  const std::pair<const char*, const char*> names[] = {
      {"int", "integer"}, {"float", "number"}, {"bool", "boolean"}, {"text", "string"}, {"choice", "string"}};
  Node schema = Node::map();
  for (const auto& [ours, theirs] : names)
    if (type == ours) schema.set("type", Node::string(theirs));
  constexpr std::string_view kList = "list of ";
  if (type.starts_with(kList)) {
    schema.set("type", Node::string("array"));
    schema.set("items", type_of(type.substr(kList.size())));
  }
  return schema;  // a map without own fields: anything
}

Node field_schema(const FieldInfo& field) {
  Node schema = type_of(field.type);
  if (field.type == "choice") {
    Node allowed = Node::list({});
    for (const std::string& name : allowed_words(field)) {
      const bool boolean = name == "true" || name == "false";  // YAML reads such a word as a boolean
      allowed.items.push_back(boolean ? Node::scalar(name) : Node::string(name));
      if (boolean) schema.erase("type");
    }
    schema.set("enum", allowed);
  } else if (Node* items = schema.find("items")) {
    add_range(*items, field.range);
  } else {
    add_range(schema, field.range);
  }
  if (field.default_text != "???" && field.type != "map") {
    const bool text = field.type == "text" || field.type == "choice";
    schema.set("default", text ? Node::string(field.default_text == "''" ? "" : field.default_text)
                               : parse_yaml(field.default_text, "default"));
  }
  schema.set("description", Node::string(field.help));
  return schema;
}

// Returns whether a part is a rule of `sync` or `optimizer`.
bool is_rule(const SchemaPart& part) {
  return part.path.starts_with("sync.") || part.path.starts_with("optimizer.");
}

// Adds a part for each rule of `sync` or `optimizer`. make(path, name) returns the part of the component that the key
// `key` of the rule names.
template <class Make>
void add_rules(std::vector<SchemaPart>& parts, const Node& composed, const char* of, const char* key, Make&& make) {
  const Node* all = composed.find(of);
  if (!all) return;
  for (const auto& [rule, node] : all->entries) {
    const std::string path = config::join_path(of, rule);
    if (const std::string name = name_in(composed, path, key, ""); !name.empty()) parts.push_back(make(path, name));
  }
}

// Returns the object at a dotted path; creates it if it does not exist. Unknown keys are forbidden, so that a misspelt
// key is found.
Node& object_at(Node& root, const std::string& path) {
  Node* node = &root;
  for (const std::string& part : path.empty() ? std::vector<std::string>() : config::split(path, '.')) {
    Node& properties = *node->find("properties");
    Node* child = properties.find(part);
    if (!child || !child->find("properties")) {
      Node object = Node::map();
      object.set("type", Node::string("object"));
      object.set("additionalProperties", Node::scalar("false"));
      object.set("properties", Node::map());
      child = &properties.set(part, object);
    }
    node = child;
  }
  return *node;
}

void add_part(Node& root, const SchemaPart& part) {
  if (!part.component.empty()) {
    Node& object = object_at(root, part.path);
    Node name = Node::map();
    Node names = Node::list({Node::string(part.component)});
    name.set("type", Node::string("string"));
    const std::string key = choosing_key(part).substr(part.path.size() + 1);
    if (!is_rule(part)) name.set("enum", names);
    object.find("properties")->set(key, name);
    if (is_rule(part)) object.find("properties")->set("params", type_of("text"));
  }
  for (const FieldInfo& field : part.fields) {
    const size_t dot = field.name.rfind('.');
    const std::string below = dot == std::string::npos ? "" : field.name.substr(0, dot);
    Node& object = object_at(root, config::join_path(part.path, below));
    const std::string name = field.name.substr(dot == std::string::npos ? 0 : dot + 1);
    // If components read this field, a separate part describes it.
    if (Node* there = object.find("properties")->find(name); !there || !there->find("properties"))
      object.find("properties")->set(name, field_schema(field));
    if (field.default_text != "???") continue;
    if (!object.find("required")) object.set("required", Node::list({}));
    object.find("required")->items.push_back(Node::string(name));
  }
}

std::optional<Node> default_value(const FieldInfo& field) {
  if (field.type == "map" || field.default_text == "???") return std::nullopt;
  return parse_yaml(field.default_text, "default");
}

}  // namespace

std::string choosing_key(const SchemaPart& part) {
  if (part.component.empty()) return "";
  return config::join_path(part.path, part.path.starts_with("sync.") ? "strategy" : "name");
}

std::vector<std::string> allowed_words(const FieldInfo& field) {
  if (field.type == "bool") return {"true", "false"};
  constexpr std::string_view kOneOf = "one of ";
  std::vector<std::string> words;
  if (field.type != "choice" || !field.range.starts_with(kOneOf)) return words;
  for (const std::string& name : config::split(field.range.substr(kOneOf.size()), ','))
    words.push_back(name.substr(name.find_first_not_of(' ')));
  return words;
}

std::vector<SchemaPart> recipe_schema(const Node& composed) {
  std::vector<SchemaPart> parts{{"", "", {}, describe_config<Recipe>()}};
  if (const std::string name = name_in(composed, "data", "name", ""); !name.empty())
    parts.push_back(built_in_part("data", component::data_kinds(), {}, name));
  for (const MixedKind& mixed : kMixed)
    if (const std::string name = name_in(composed, name_of(mixed.kind), "name", mixed.fallback); !name.empty())
      parts.push_back(mixed_part(mixed.kind, name_of(mixed.kind), name));
  for (const PluginKind kind : {PluginKind::model, PluginKind::batcher, PluginKind::comm}) {
    const std::string name = name_in(composed, name_of(kind), "name", "");
    if (name.empty() || name == "self") continue;  // one rank, built in, without fields to show
    parts.push_back(plugin_part(kind, name_of(kind), name));
  }
  if (name_in(composed, "optimizer", "name", "").empty())
    add_rules(parts, composed, "optimizer", "name", [](const std::string& path, const std::string& name) {
      return mixed_part(PluginKind::optimizer, path, name);
    });
  add_rules(parts, composed, "sync", "strategy",
            [](const std::string& path, const std::string& name) { return plugin_part(PluginKind::sync, path, name); });
  return parts;
}

std::optional<Node> default_of(const Node& composed, const std::string& path) {
  for (const FieldInfo& f : describe_config<Recipe>())
    if (f.name == path) return default_value(f);
  try {
    for (const SchemaPart& part : recipe_schema(composed))
      for (const FieldInfo& f : part.fields)
        if (config::join_path(part.path, f.name) == path) return default_value(f);
  } catch (const UserError&) {  // an unknown component; the check of the recipe reports it better
  }
  return std::nullopt;
}

Node json_schema(const std::vector<SchemaPart>& parts) {
  Node root = Node::map();
  root.set("$schema", Node::string("https://json-schema.org/draft/2020-12/schema"));
  root.set("title", Node::string("an lmx recipe"));
  root.set("type", Node::string("object"));
  root.set("additionalProperties", Node::scalar("false"));
  root.set("properties", Node::map());
  object_at(root, "").find("properties")->set("defaults", type_of("list of map"));
  for (const SchemaPart& part : parts) add_part(root, part);
  return root;
}

}  // namespace lmx::app
