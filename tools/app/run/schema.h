// What a recipe may hold.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// A part of a recipe with its own typed fields.
struct SchemaPart {
  std::string path;                 // "model"; "": the recipe's own keys
  std::string component;            // what its `name` chooses: "lstm"; "" for the recipe itself
  std::vector<std::string> others;  // what it could choose instead
  std::vector<FieldInfo> fields;
};
// The key that chooses a part's component: "model.name", "sync.rest.strategy"; "" for the recipe itself.
std::string choosing_key(const SchemaPart& part);
// What a field may be where its type leaves a choice of words: a choice's names, true and false; else nothing.
std::vector<std::string> allowed_words(const FieldInfo& field);
// The recipe's own keys, then a part for each component that it names.
std::vector<SchemaPart> recipe_schema(const Node& composed);
// The same as a JSON Schema (draft 2020-12).
Node json_schema(const std::vector<SchemaPart>& parts);
// The default of the field at `path` of what `composed` names, for ComposeOptions::default_of. None: no such field, a
// map, or one that must be given.
std::optional<Node> default_of(const Node& composed, const std::string& path);

}  // namespace lmx
