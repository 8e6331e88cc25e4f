// The shipped recipes, and how tests make their models small.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "app/run/schema.h"
#include "base/text.h"
#include "paths.h"

namespace lmx::app {

inline std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(lmx_test::source_path("/recipes")))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string text_at(const Node& tree, const char* path) {
  const Node* node = tree.at_path(path);
  return node ? node->text : "";
}
inline int64_t integer_at(const Node& tree, const char* path) {
  return parse_int(text_at(tree, path)).value();
}

inline std::string file_of(const std::string& recipe) {
  return lmx_test::source_path("/recipes/") + recipe + ".yaml";
}

inline Node composed(const std::string& recipe, const std::vector<std::string>& overrides) {
  ComposeOptions options;
  options.overrides = overrides;
  options.default_of = default_of;
  return compose(file_of(recipe), options);
}

inline void set(Node& tree, const char* part, const char* key, const std::string& yaml) {
  if (!tree.find(part)) tree.set(part, Node::map());
  tree.find(part)->set(key, parse_yaml(yaml, "change"));
}

// Gives the model that many units and at most that many layers.
inline void shrink_model(Node& tree, int64_t units, int64_t layers) {
  for (auto& [key, value] : tree.find("model")->entries) {
    const std::optional<int64_t> given = parse_int(value.text);
    if (!given || *given == 0) continue;
    if (key == "cells" || key == "embedding" || key == "projection" || key == "d" || key == "ffn")
      value = parse_yaml(str(units), "change");
    else if (key.ends_with("layers") || key == "depth")
      value = parse_yaml(str(std::min(*given, layers)), "change");
    else if (key == "heads" || key == "kv_heads")
      value = parse_yaml(key == "heads" ? "2" : "1", "change");
  }
}

}  // namespace lmx::app
