// Words that an option takes and that its command checks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lmx_cli {

// Lists the words in the option's help and for completion. Accepts every value, because the command itself checks it
// and proposes a similar word.
CLI::Validator offered(const std::vector<std::string>& words);

}  // namespace lmx_cli
