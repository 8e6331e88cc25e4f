// Numbers as text.
#pragma once

#include <cstdint>
#include <string>

namespace lmx {

// The shortest text that reads back to the same double: "0.1", "NaN", "Infinity", "-Infinity".
std::string number_text(double value);
double number_from_text(const std::string& text);  // UserError for any other text

// "111,845,376"; "1.3 GB".
std::string count_text(int64_t value);
std::string bytes_text(int64_t bytes);

}  // namespace lmx
