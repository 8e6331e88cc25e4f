// Small things that the runner of cases shares; the core's own stay inside it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::test {

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    parts.emplace_back(text.substr(begin, end - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

inline std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

inline std::string join_path(const std::string& parent, const std::string& child) {
  return parent.empty() ? child : parent + "." + child;
}

inline bool is_missing(const Node& node) {
  return node.kind == Node::Kind::scalar && node.text == "???";
}

}  // namespace lmx::test
