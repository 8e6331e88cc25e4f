// Text in columns, for every table that lmx prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

// Counts Unicode code points, so that text in other alphabets is aligned.
size_t width_of(std::string_view text);

// Appends spaces until `text` is `width` columns wide.
std::string padded(const std::string& text, size_t width);

// Returns the columns of the terminal at `descriptor`, or COLUMNS if this variable is set. Returns 0 (no limit) if it
// is no terminal and COLUMNS is not set.
size_t terminal_columns(int descriptor);

// Returns lines of at most `width` columns (0: no limit). Words are not split: a longer word has its own line. A
// newline in `text` ends a line. Returns at least one line.
std::vector<std::string> wrapped(std::string_view text, size_t width);
// Returns `text` with every line broken between words that has more than `width` columns (0: no limit). The rest of
// such a line is indented by two more than its beginning.
std::string folded(std::string_view text, size_t width);
// Returns the first parts of a line, which two spaces separate (or words, if it has no such parts), that fit into
// `width` columns (0: no limit).
std::string shortened(std::string_view line, size_t width);

struct TableLayout {
  size_t left = std::string::npos;  // so many columns are aligned on the left, the others on the right
  size_t gap = 2;                   // spaces between two columns
  std::vector<size_t> least = {};   // least widths of the columns; a column that is absent has none
};
// Formats each row as a line in which every column is as wide as its widest cell. Rows may have fewer cells than
// others. The lines have no trailing spaces.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows, const TableLayout& layout = {});

}  // namespace lmx
