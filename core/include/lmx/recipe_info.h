// What a recipe may hold, and where the values of a composed one come from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/sweep.h"

namespace lmx {

// One value that a run would use.
struct ValueOrigin {
  std::string path, value;  // "optimizer.lr", "0.001"
  // "recipes/x.yaml:12:3", "override 'optimizer.lr=1'", "default of optimizer adam"
  std::string origin;
  // What lists of the recipe's `provenance` that name the key, or a part of the recipe with it, say of the value: those
  // of the file that gave it or of a later one. A key that no file gives must be named itself. "" for nothing.
  std::string provenance;
  std::string comment;  // beside the value
};
// Every value of full_recipe(composed, name), in its order. `files`: merged_files() of the same recipe.
LMX_API std::vector<ValueOrigin> explain_recipe(const Node& composed, const std::string& name,
                                                const std::vector<MergedFile>& files);

// A part of a recipe with its own typed fields.
struct SchemaPart {
  std::string path;                 // "model"; "": the recipe's own keys
  std::string component;            // what its `name` chooses: "lstm"; "" for the recipe itself
  std::vector<std::string> others;  // what it could choose instead
  std::vector<FieldInfo> fields;
};
// The key that chooses a part's component: "model.name", "sync.rest.strategy"; "" for the recipe itself.
LMX_API std::string choosing_key(const SchemaPart& part);
// What a field may be where its type leaves a choice of words: a choice's names, true and false; else nothing.
LMX_API std::vector<std::string> allowed_words(const FieldInfo& field);
// The recipe's own keys, then a part for each component that it names.
LMX_API std::vector<SchemaPart> recipe_schema(const Node& composed);
// The same as a JSON Schema (draft 2020-12).
LMX_API Node json_schema(const std::vector<SchemaPart>& parts);
// The default of the field at `path` of what `composed` names, for ComposeOptions::default_of. None: no such field, a
// map, or one that must be given.
LMX_API std::optional<Node> default_of(const Node& composed, const std::string& path);

}  // namespace lmx
