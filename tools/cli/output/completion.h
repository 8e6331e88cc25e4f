// Command-line completion for the shell, and the manual page. Both are generated from the tables of the commands.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"

namespace lmx_cli {

// Returns the completions of the last of `words` (the command line after `lmx`), one per line. ":files" requests file
// names.
std::vector<std::string> completions(Command root, const std::vector<std::string>& words);

// Returns a manual page in roff, from every command's --help.
std::string manual_page(Command root);

// Completes words of the command line that change a recipe.

// The words before the word to complete.
struct GivenWords {
  std::vector<std::string> plain;  // neither flags nor their values: the recipe, then overrides
  std::vector<std::string> config_directories;
  PluginDirectories plugins;
};

// Returns possible overrides of the recipe plain[0] after the other overrides in `plain`: groups and their options,
// every key that the recipe or its components may have, and the values of a key that is complete. Does not load plugins
// whose build has described them.
std::set<std::string> override_words(const GivenWords& given, const std::string& word);

}  // namespace lmx_cli
