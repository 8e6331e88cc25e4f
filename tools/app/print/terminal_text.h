// Text for a terminal, which obeys control characters.
#pragma once

#include <string>
#include <string_view>

namespace lmx {

// `text` with each control character but line feed and tab, and each byte that is not UTF-8, written as "\x1b".
std::string terminal_text(std::string_view text);

}  // namespace lmx
