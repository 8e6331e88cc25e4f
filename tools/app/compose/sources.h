// The files of which a recipe is composed: where they are searched, in which order they are merged, and how.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "app/compose/override.h"
#include "lmx/config.h"

namespace lmx::app {

// An entry of a defaults list: `_self_`, a file (`corpus/ott`), or a choice (`model: lstm`).
struct DefaultEntry {
  enum class Kind { self, file, choice };
  Kind kind = Kind::choice;
  bool optional = false;     // a missing file is ignored
  bool is_override = false;  // `override model: x` replaces the option that another list chooses
  std::string group;         // "model/attn"; a leading '/' starts at the search path instead of the file's own group
  std::string name;          // file: its name inside the group
  std::optional<std::string> package;
  Node option;  // choice: null, a scalar, or a list of scalars
  Mark mark;

  void set_file(const std::string& path);  // "corpus/ott" as group and name
  std::string path() const;                // of a file: "corpus/ott"; of a choice: its group
  std::string label() const;               // as written: "model@enc"
};

struct RecipeFile {
  std::string file;
  Node content;  // a map without `defaults`
  std::vector<DefaultEntry> defaults;
  std::optional<std::string> package;  // from `# @package x`
};

class Sources {
 public:
  // Searches the recipe's own folder, every folder named `recipes` above it, then `search_path`; each folder once.
  Sources(const std::string& recipe_file, const std::vector<std::string>& search_path);

  // "model/lstm" or "model/lstm.yaml" gives model/lstm.yaml in the first folder that has it; null if no folder has it.
  const RecipeFile* find(const std::string& name);
  bool has_group(const std::string& group) const;
  std::vector<std::string> options(const std::string& group) const;  // sorted
  std::vector<std::string> groups() const;                           // "model", "model/attn", ... sorted
  const std::vector<std::string>& folders() const { return folders_; }

  static RecipeFile load(const std::string& file);

 private:
  std::vector<std::string> folders_;
  std::map<std::string, std::optional<RecipeFile>> files_;
};

// Expands defaults lists into the ordered list of files to merge.

struct MergeStep {
  const RecipeFile* source;
  std::string package;          // the path at which its content is merged: "model.attn", "" for the root
  std::vector<Mark> chosen_by;  // overrides of groups, in files or on the command line, that select this file
};

struct Expanded {
  std::vector<MergeStep> steps;
  std::map<std::string, std::string> choices;  // group -> option
};

// `groups`: the overrides that choose groups (see is_group_override). UserError if an override names something that
// does not exist, matches no entry of a defaults list, or chooses a group twice.
Expanded expand_defaults(const RecipeFile& recipe, Sources& sources, const std::vector<Override>& groups);

// `model=base` chooses a group if a folder model/ exists; `model.dim=3` and `model={dim: 3}` set values. `model=3` also
// sets a value if the recipe writes `model:` itself, and neither its defaults list nor that of an included file chooses
// that group.
bool is_group_override(const Override& override, Sources& sources, const RecipeFile& recipe);

// Merges trees: files into one tree, and value overrides into that tree.

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

// The files of a recipe, and the overrides of the command line, divided into choices of groups and values.
struct Inputs {
  Inputs(const std::string& recipe_file, const std::vector<std::string>& search_path)
      : recipe(Sources::load(recipe_file)), sources(recipe_file, search_path) {}
  // UserError if an override is a sweep: one run takes one value for each key.
  void add(const ComposeOptions& options);

  RecipeFile recipe;
  Sources sources;
  std::vector<Override> groups, values;
};

}  // namespace lmx::app
