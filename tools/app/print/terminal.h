// Width and colours of the terminal at stdout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace lmx::app {

// Returns the columns of the terminal, or COLUMNS if this variable is set. Returns 0 (no limit) if stdout is not a
// terminal and COLUMNS is not set.
size_t terminal_width();

// Returns `text` in bold if stdout is a terminal with colours and NO_COLOR is not set; otherwise `text`.
std::string bold(const std::string& text);

// Returns text that is folded to the width of the terminal, for everything that a command prints for people. Tables
// that fit are not changed.
std::string fit(std::string_view text);

// Formats two columns: `left` with an indent of two, `right` from column `column` on, in as many lines as needed. If
// `left` is too long, `right` begins on the next line.
std::string two_columns(const std::string& left, const std::string& right, size_t column, size_t width);

// Formats rows as columns of equal width. The first row is the header. There are no trailing spaces. If the table is
// wider than `width` (0: no limit), the widest cells are wrapped between words. If that is not enough, the table is
// continued below itself: each part begins with the first column.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t width);
// The same with the width of the terminal and a bold header.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lmx::app
