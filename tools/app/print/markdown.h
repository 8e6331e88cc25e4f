// Tables of Markdown files.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli {

// The first row is the header. `rule` is the text of each column in the line below it. In cells `|` is escaped, and a
// newline becomes a space.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::string& rule);

}  // namespace lmx_cli
