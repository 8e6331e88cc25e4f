// Lists of words in messages, commands in the form in which users type them, and tables of Markdown files.
#pragma once

#include <string>
#include <vector>

namespace lmx::app {

// Joins any range of strings: "a, b, c".
template <class Words>
std::string joined(const Words& words, const std::string& between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// A cell of a CSV file: in quotation marks if the text needs them.
inline std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Commands in the form in which users type them.

// Returns the command with which the user calls lmx, for hints that can be copied: `lmx`, or the path with which
// tools/lmx was called.
std::string command_name();

// Quotes a word for a shell.
std::string shell_quoted(const std::string& word);

// Tables of Markdown files.

// The first row is the header. `rule` is the text of each column in the line below it. In cells `|` is escaped, and a
// newline becomes a space.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::string& rule);

}  // namespace lmx::app
