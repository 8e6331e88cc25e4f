// The files of which a recipe is composed: where they are searched, and their defaults lists.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

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

struct SourceFile {
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
  const SourceFile* find(const std::string& name);
  bool has_group(const std::string& group) const;
  std::vector<std::string> options(const std::string& group) const;  // sorted
  std::vector<std::string> groups() const;                           // "model", "model/attn", ... sorted
  const std::vector<std::string>& folders() const { return folders_; }

  static SourceFile load(const std::string& file);

 private:
  std::vector<std::string> folders_;
  std::map<std::string, std::optional<SourceFile>> files_;
};

}  // namespace lmx::config
