// The mistakes of docs/errors.md: their files, commands and messages.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace lmx_test {

struct Mistake {
  std::string title, file, content, command, message;
};

// Calls `visit(title, block, line)` for each line. `block` is the language of the code block that contains the line
// ("yaml", "sh" or "text"); it is empty for a line outside of blocks, and for the lines that begin and end a block.
template <class Visit>
void visit_lines(const std::string& document, const Visit& visit) {
  std::istringstream lines(document);
  std::string title, block;
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with("```"), begins = fence && block.empty();
    if (fence) block.clear();
    if (block.empty() && line.starts_with("## ")) title = line.substr(3);
    visit(title, block, line);
    if (begins) block = line.substr(3);
  }
}

// The blocks of each section: an optional file (its name in backquotes, then yaml), the command (sh), the message
// (text). Sections without a command are left out: their messages need a GPU, and tests/run/cuda_run_test.cc compares
// them.
inline std::vector<Mistake> mistakes_of(const std::string& document) {
  std::vector<Mistake> all;
  visit_lines(document, [&](const std::string& title, const std::string& block, const std::string& line) {
    if (block.empty() && line.starts_with("## ")) all.push_back({title, "", "", "", ""});
    if (block.empty() && line.starts_with("`") && line.ends_with("`:"))
      all.back().file = line.substr(1, line.size() - 3);
    if (block == "yaml") all.back().content += line + "\n";
    if (block == "sh") all.back().command += line + "\n";
    if (block == "text") all.back().message += line + "\n";
  });
  std::erase_if(all, [](const Mistake& m) { return m.command.empty(); });
  return all;
}

// Returns the document with another message in the section `title`. Everything else is unchanged.
inline std::string with_message(const std::string& document, const std::string& title, const std::string& message) {
  std::string text;
  visit_lines(document, [&](const std::string& section, const std::string& block, const std::string& line) {
    if (section == title && block == "text") return;
    text += line + "\n";
    if (section == title && block.empty() && line == "```text") text += message;
  });
  return text;
}

}  // namespace lmx_test
