#include "app/compose/interpolation_text.h"

#include <algorithm>

#include "config/messages.h"

namespace lmx::config {
namespace {

constexpr size_t kMaxReferences = 100;  // longest chain of references

}  // namespace

bool ends_in_escape(std::string_view text) {
  const size_t last = text.find_last_not_of('\\');
  return (text.size() - (last == std::string_view::npos ? 0 : last + 1)) % 2 == 1;
}

bool has_interpolation(const Node& node) {
  return node.kind == Node::Kind::scalar && node.text.find("${") != std::string::npos;
}

size_t end_of_interpolation(std::string_view text, size_t begin) {
  size_t depth = 0;
  char quote = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"')
      quote = c;
    else if (c == '{' || c == '[')
      ++depth;
    else if (c == '}' || c == ']')
      --depth;
    if (c == ',' && depth == 0 && !quote) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
    if (c == '\\' && i + 1 < text.size()) parts.back() += text[++i];  // `\,` separates nothing
  }
  for (std::string& part : parts) {
    const size_t begin = std::min(part.find_first_not_of(' '), part.size());
    size_t end = part.find_last_not_of(' ') + 1;
    if (end < part.size() && ends_in_escape(std::string_view(part).substr(begin, end - begin))) ++end;
    part = part.substr(begin, end - begin);
  }
  return parts;
}

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escapes = text[i] == '\\' && i + 1 < text.size() &&
                         std::string_view("\\()[]{}:=, \t").find(text[i + 1]) != std::string_view::npos;
    out += text[escapes ? ++i : i];
  }
  return out;
}

std::optional<std::string> absolute_path(std::string_view reference, const std::string& path) {
  std::string dotted;  // a[0].b as a.0.b; before `[a]`, and after the dots of `..[0]`, no dot is inserted
  for (const char c : reference) {
    if (c == '[' && !dotted.empty() && dotted.back() != '.') dotted += '.';
    if (c != '[' && c != ']') dotted += c;
  }
  if (!dotted.starts_with(".")) return dotted;
  const size_t dots = std::min(dotted.find_first_not_of('.'), dotted.size());
  std::vector<std::string> base = split(path, '.');
  if (dots > base.size()) return std::nullopt;
  base.resize(base.size() - dots);
  return join_path(join(base, "."), dotted.substr(dots));
}

const Node* referred(const Node& root, const Node& node, std::string path) {
  const Node* target = &node;
  for (size_t depth = 0; depth < kMaxReferences && has_interpolation(*target); ++depth) {
    const std::string_view text = target->text;
    const bool lone = text.starts_with("${") && end_of_interpolation(text, 0) == text.size();
    const std::string_view reference = lone ? text.substr(2, text.size() - 3) : "";
    if (reference.empty() || reference.find_first_of(":{ ") != std::string_view::npos) return nullptr;
    const auto absolute = absolute_path(reference, path);
    target = absolute ? root.at_path(*absolute) : nullptr;
    if (!target) return nullptr;
    path = *absolute;
  }
  return target == &node ? nullptr : target;
}

}  // namespace lmx::config
