// Text for a terminal, without control characters that the terminal would execute.
#pragma once

#include <string>
#include <string_view>

namespace lmx {

// Returns `text` with control characters (except line feed and tab) and bytes that are not UTF-8 written as "\x1b".
std::string terminal_text(std::string_view text);

}  // namespace lmx
