// What a word of the command line that changes a recipe may become.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace lmx_cli {

// The words before the one that is asked for.
struct GivenWords {
  std::vector<std::string> plain;  // neither flags nor their values: the recipe, then overrides
  std::vector<std::string> config_directories;
  PluginDirectories plugins;
};

// Overrides of the recipe plain[0], as the others before it have made it: groups, their options, every key that it or
// what it names may hold, and the values of a key that is written out. Loads no plugin that its build has described.
std::set<std::string> override_words(const GivenWords& given, const std::string& word);

}  // namespace lmx_cli
