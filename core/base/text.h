// Numbers as text, and text as a terminal may show it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmx {

// The shortest text that reads back to the same double: "0.1", "NaN", "Infinity", "-Infinity".
std::string number_text(double value);
double number_from_text(const std::string& text);  // UserError for any other text

// "111,845,376"; "1.3 GB".
std::string count_text(int64_t value);
std::string bytes_text(int64_t bytes);

// The text with <U+XXXX> for each control character but line ends and tabs, and for each character that is invisible or
// looks like a blank, and with <xNN> for each byte that is not UTF-8: a difference cannot be hidden, and no terminal
// executes the text.
std::string printable(std::string_view text);

// The same for controls alone, without lmx's own colours: "\033[1m". For long texts whose other characters are their
// own concern.
std::string without_controls(std::string_view text);

}  // namespace lmx
