// A file of lines that is only appended to, for journals. Each line is on disk before the next event.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli::jobs {

// Returns the whole text of a file; "" if there is none.
std::string read_text(const std::string& path);

// Returns the complete lines, without their ends. Removes an incomplete last line from the file. RunError: it cannot be
// removed.
std::vector<std::string> read_lines(const std::string& path);

// The line is on disk when the function returns. RunError: a full disk; the next read_lines() removes the incomplete
// line.
void append_line(const std::string& path, const std::string& line);

}  // namespace lmx_cli::jobs
