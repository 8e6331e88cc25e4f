// Bytes as people compare them.
#pragma once

#include <string>
#include <string_view>

namespace lmx {

// Two lower-case hexadecimal digits a byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace lmx
