// The keys that a recipe may contain, and where its values come from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx::app {

// A part of a recipe with its own typed fields.
struct SchemaPart {
  std::string path;                 // "model"; "": the recipe's own keys
  std::string component;            // the component that its `name` chooses: "lstm"; "" for the recipe itself
  std::vector<std::string> others;  // the other components that it could choose
  std::vector<FieldInfo> fields;
};
// Returns the key that chooses a part's component: "model.name", "sync.rest.strategy", "optimizer.rest.name"; "" for
// the recipe itself.
std::string choosing_key(const SchemaPart& part);
// Returns the permitted words of a field: the names of a choice, or true and false; otherwise nothing.
std::vector<std::string> allowed_words(const FieldInfo& field);
// Returns the recipe's own keys, then a part for each component that it names.
std::vector<SchemaPart> recipe_schema(const Node& composed);
// Returns the same as a JSON Schema (draft 2020-12).
Node json_schema(const std::vector<SchemaPart>& parts);
// Returns the default of the field at `path`, given the components that `composed` names; for
// ComposeOptions::default_of. nullopt: there is no such field, it is a map, or it is required.
std::optional<Node> default_of(const Node& composed, const std::string& path);

// Finds the origin of the values of a composed recipe.

// One value that a run would use.
struct ValueOrigin {
  std::string path, value;  // "optimizer.lr", "0.001"
  // "recipes/x.yaml:12:3", "override 'optimizer.lr=1'", "default of optimizer adam"
  std::string origin;
  // The remark on the value in the recipe's `provenance`. A list there may name the key, or a part of the recipe that
  // contains it. The list counts only if its file is the one that gave the value, or a later one. A key that no file
  // gives must be named itself. "": no remark.
  std::string provenance;
  std::string comment;  // comment on the value's line
};
// Returns every value of full_recipe(composed, name), in its order. `files`: merged_files() of the same recipe.
std::vector<ValueOrigin> explain_recipe(const Node& composed, const std::string& name,
                                        const std::vector<MergedFile>& files);

}  // namespace lmx::app
