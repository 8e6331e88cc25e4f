// Expands defaults lists into the ordered list of files to merge.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/compose/override.h"
#include "app/compose/sources.h"

namespace lmx::config {

struct MergeStep {
  const SourceFile* source;
  std::string package;          // the path at which its content is merged: "model.attn", "" for the root
  std::vector<Mark> chosen_by;  // overrides of groups, in files or on the command line, that select this file
};

struct Expanded {
  std::vector<MergeStep> steps;
  std::map<std::string, std::string> choices;  // group -> option
};

// `groups`: the overrides that choose groups (see is_group_override). UserError if an override names something that
// does not exist, matches no entry of a defaults list, or chooses a group twice.
Expanded expand_defaults(const SourceFile& recipe, Sources& sources, const std::vector<Override>& groups);

// `model=base` chooses a group if a folder model/ exists; `model.dim=3` and `model={dim: 3}` set values. `model=3` also
// sets a value if the recipe writes `model:` itself, and neither its defaults list nor that of an included file chooses
// that group.
bool is_group_override(const Override& override, Sources& sources, const SourceFile& recipe);

}  // namespace lmx::config
