// Bytes as hexadecimal text.
#pragma once

#include <string>
#include <string_view>

namespace lmx {

// Two lower-case hexadecimal digits for each byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace lmx
