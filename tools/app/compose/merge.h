// Merges trees: files into one tree, and value overrides into that tree.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "app/compose/override.h"

namespace lmx::config {

// Maps merge key by key. Every other value is replaced, except that `???` keeps a value that already exists. `path` is
// the path of `into`, and `root` is the tree in which its references are resolved. UserError: a list over a map, or a
// map over a list.
void merge(Node& into, const Node& from, const std::string& path = "", const Node* root = nullptr);
void merge_at(Node& root, const std::string& package, const Node& from);

struct ApplyRules {
  bool typed = false;                                // see ComposeOptions::typed
  std::function<std::vector<std::string>()> groups;  // existing groups; called only to suggest one
};
void apply_override(Node& root, const Override& o, const ApplyRules& rules);

}  // namespace lmx::config
