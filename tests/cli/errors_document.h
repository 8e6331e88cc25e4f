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
// ("yaml", "console" or "text"); it is empty for a line outside of blocks, and for the lines that begin and end a
// block.
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

// The blocks of each section: an optional file (its name in backquotes, then yaml), then a console, where lines that
// begin with "$ " are the command and the others the message. Sections without a console are left out: their messages
// need a GPU, and tests/run/cuda_run_test.cc compares them.
inline std::vector<Mistake> mistakes_of(const std::string& document) {
  std::vector<Mistake> all;
  visit_lines(document, [&](const std::string& title, const std::string& block, const std::string& line) {
    if (block.empty() && line.starts_with("## ")) all.push_back({title, "", "", "", ""});
    if (block.empty() && line.starts_with("`") && line.ends_with("`:"))
      all.back().file = line.substr(1, line.size() - 3);
    if (block == "yaml") all.back().content += line + "\n";
    if (block != "console") return;
    if (line.starts_with("$ ")) {
      all.back().command += line.substr(2) + "\n";
    } else {
      all.back().message += line + "\n";
    }
  });
  std::erase_if(all, [](const Mistake& m) { return m.command.empty(); });
  return all;
}

// Returns the document with another message in the section `title`. Everything else is unchanged.
inline std::string with_message(const std::string& document, const std::string& title, const std::string& message) {
  std::string text;
  bool console = false;
  visit_lines(document, [&](const std::string& section, const std::string& block, const std::string& line) {
    if (console && block.empty()) text += message;
    console = section == title && block == "console";
    if (!console || line.starts_with("$ ")) text += line + "\n";
  });
  return text;
}

}  // namespace lmx_test
