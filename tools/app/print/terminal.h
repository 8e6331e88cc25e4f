// Width and colours of the terminal at stdout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmx_cli {

// Columns of the terminal, or what COLUMNS in the environment says; 0, no limit, if stdout is no terminal and COLUMNS
// is not set.
size_t terminal_width();

// `text` in bold if stdout is a terminal with colours and NO_COLOR is not set; else `text`.
std::string bold(const std::string& text);

// Unicode code points, so that text in other alphabets lines up.
size_t width_of(std::string_view text);

// Lines of at most `width` columns (0: no limit), each word whole: a longer word stands alone on its line. A newline in
// `text` ends a line. At least one line.
std::vector<std::string> wrapped(std::string_view text, size_t width);

// Two columns: `left` behind an indent of two, `right` from column `column` on, in as many lines as it takes. Where
// `left` is longer, `right` begins on the next line.
std::string two_columns(const std::string& left, const std::string& right, size_t column, size_t width);

// Rows as columns of equal width, the first row being the header. No trailing spaces. If the table is wider than
// `width` (0: no limit), the widest cells are wrapped between words.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t width);
// The same as wide as the terminal, with a bold header.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lmx_cli
