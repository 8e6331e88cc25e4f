// Expands defaults lists into the ordered list of files to merge.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/override.h"
#include "config/sources.h"

namespace lmx::config {

struct MergeStep {
  const SourceFile* source;
  std::string package;          // where its content lands: "model.attn", "" for the root
  std::vector<Mark> chosen_by;  // overrides of groups, in files or on the command line, without which it were not there
};

struct Expanded {
  std::vector<MergeStep> steps;
  std::map<std::string, std::string> choices;  // group -> option
};

// `groups`: the overrides that choose groups (see is_group_override). UserError for what cannot be found, is chosen
// twice, or matches nothing.
Expanded expand_defaults(const SourceFile& recipe, Sources& sources, const std::vector<Override>& groups);

// `model=base` chooses a group when a folder model/ is there; `model.dim=3` and `model={dim: 3}` set values. So does `model=3`
// of a recipe that writes `model:` itself and whose defaults list does not choose that group.
bool is_group_override(const Override& override, const Sources& sources, const SourceFile& recipe);

}  // namespace lmx::config
