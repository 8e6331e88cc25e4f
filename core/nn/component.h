// Components that a recipe chooses by `name`: the table of the names of one kind, and functions to read such a subtree.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::component {

// A map with `name` first, then every field of Config.
template <class Config>
Node full(const char* name, const Node& config, const std::string& path) {
  const Config checked = Config::read(config, path);
  Node out = Node::map(config.mark);
  out.set("name", Node::scalar(name));
  for (auto& [key, value] : write_config(checked).entries) out.set(key, value);
  return out;
}

// One name of a kind: functions that create the component from its subtree, and that add all defaults to the subtree.
template <class Make>
struct Entry {
  const char* name;
  Make make;
  Node (*with_defaults)(const char* name, const Node& config, const std::string& path);
  std::vector<FieldInfo> (*fields)();
  Traits (*traits)(const Node& config, const std::string& path);
  Node full(const Node& config, const std::string& path) const { return with_defaults(name, config, path); }
};
// The traits of a config, which has none without a function traits().
template <class Config>
Traits traits_of(const Node& config, const std::string& path) {
  if constexpr (requires(const Config c) { c.traits(); }) return Config::read(config, path).traits();
  return {};
}
// Config: the fields of the component, with read(config, path).
template <class Config, class Make>
Entry<Make> entry(const char* name, Make make) {
  return {name, make, component::full<Config>, describe_config<Config>, component::traits_of<Config>};
}

// The names of one kind with their fields.
using Described = std::vector<std::pair<std::string, std::vector<FieldInfo>>>;
template <class Make>
Described describe(const std::vector<Entry<Make>>& entries) {
  Described all;
  for (const auto& e : entries) all.emplace_back(e.name, e.fields());
  return all;
}
// Each is defined beside the table of its kind.
Described optimizers();
Described schedules();
Described losses();
Described data_kinds();
Described codecs();

// The entry that `config` names, or null if it names one of `others`, which are the plugins of this kind. `fallback` is
// used if the recipe has no such name; null: that is an error. UserError with the place and the nearest name.
template <class Make>
const Entry<Make>* find(const std::vector<Entry<Make>>& entries, const std::vector<std::string>& others,
                        const Node& config, const std::string& path, const char* fallback) {
  std::vector<std::string> names;
  for (const Entry<Make>& e : entries) names.emplace_back(e.name);
  names.insert(names.end(), others.begin(), others.end());
  const auto expected = [&](const Mark& mark, const std::string& got, const std::string& hint) {
    return UserError(
        str(config::at(mark, path + ".name"), "expected one of ", config::join(names), ", got ", got, hint));
  };
  if (config.kind != Node::Kind::null && config.kind != Node::Kind::map) {
    throw UserError(
        str(config::at(config.mark, path), "expected a map with a `name`, got ", config::describe_value(config)));
  }
  const Node* name = config.find("name");
  if (!name && !fallback) throw expected(config.mark, "none", "");
  const std::string wanted = name ? name->text : fallback;
  if (!name || name->kind == Node::Kind::scalar) {
    for (const Entry<Make>& e : entries) {
      if (wanted == e.name) return &e;
    }
    if (std::find(others.begin(), others.end(), wanted) != others.end()) return nullptr;
  }
  throw expected(name->mark, config::describe_value(*name), did_you_mean(wanted, names));
}

}  // namespace lmx::component
