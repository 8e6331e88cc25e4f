// Lists of words in messages.
#pragma once

#include <string>

namespace lmx_cli {

// Joins any range of strings: "a, b, c".
template <class Words>
std::string joined(const Words& words, const std::string& between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace lmx_cli
