// Putting trees together: files into one tree, value overrides onto it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/override.h"

namespace lmx::config {

// Maps merge key by key; everything else is replaced, except that `???` leaves a value that is already there. `path` is
// where `into` stands, and `root` the tree that its references mean. UserError: a list over a map, or a map over a
// list.
void merge(Node& into, const Node& from, const std::string& path = "", const Node* root = nullptr);
void merge_at(Node& root, const std::string& package, const Node& from);

struct ApplyRules {
  bool typed = false;                                // ComposeOptions::typed
  std::function<std::vector<std::string>()> groups;  // groups that exist; asked only to suggest one
};
void apply_override(Node& root, const Override& o, const ApplyRules& rules);

}  // namespace lmx::config
