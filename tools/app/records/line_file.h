// A file of lines that only grows, each on disk before the next thing happens: what a journal is made of.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli::jobs {

// The whole text of a file; "" where there is none.
std::string read_text(const std::string& path);

// The whole lines, without their ends. What a kill left of a last one is cut off the file. RunError where it cannot be.
std::vector<std::string> read_lines(const std::string& path);

// On disk when it returns. RunError: a full disk, whose half line the next read_lines() cuts off.
void append_line(const std::string& path, const std::string& line);

}  // namespace lmx_cli::jobs
