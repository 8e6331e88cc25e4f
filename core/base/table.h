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

struct TableLayout {
  size_t left = std::string::npos;  // so many columns are aligned on the left, the others on the right
  size_t gap = 2;                   // spaces between two columns
  std::vector<size_t> least = {};   // least widths of the columns; a column that is absent has none
};
// Formats each row as a line in which every column is as wide as its widest cell. Rows may have fewer cells than
// others. The lines have no trailing spaces.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows, const TableLayout& layout = {});

}  // namespace lmx
