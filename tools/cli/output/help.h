// The format of `--help`.
#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}

namespace lmx_cli {

// Puts examples first, wraps lines at the terminal's width between words, and prints headings in bold if the terminal
// has colours.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace lmx_cli
