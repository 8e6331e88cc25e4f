// The command line of a case, and what its primary config says to Hydra itself, in lmx's terms.
#pragma once

#include <string>
#include <vector>

#include "app/compose/compose.h"

namespace lmx::test {

struct CommandLine {
  std::string recipe;  // the primary config's path
  app::ComposeOptions options;
  bool multirun = false, print = false, resolve = false, info = false;
  std::string package;
  std::vector<std::string> sweep_params;  // hydra.sweeper.params, as overrides
  app::RunNames names{"app", 0};
  app::DirnameRules dirname;
};

// Reads `args`, and takes the section `hydra:` out of the primary config, which lies in `folder`. UserError: a flag
// that is not known.
CommandLine read_command_line(const std::vector<std::string>& args, const std::string& folder);

}  // namespace lmx::test
