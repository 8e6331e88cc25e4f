#include "config/yaml_syntax.h"

#include <algorithm>
#include <iterator>

namespace lmx::config {
namespace {

// Byte offsets of a line in the text of its file.
size_t begin_of(const SourceText& source, std::string_view line) {
  return static_cast<size_t>(line.data() - source.text().data());
}

// The beginnings of yaml-cpp's messages, and the messages that lmx prints for them.
const std::pair<const char*, const char*> kInWords[] = {
    {YAML::ErrorMsg::UNKNOWN_TOKEN, "a text that begins with @, ` or % needs quotes"},
    {YAML::ErrorMsg::BLOCK_ENTRY, "a list's '- ' begins a line of its own, below its key; or write [item, item]"},
    {YAML::ErrorMsg::MAP_KEY, "a '? ' that is no key; put quotes around a text that begins with it"},
    {YAML::ErrorMsg::UNKNOWN_ANCHOR, "no '&' above gives this name to a value; a text that begins with * needs quotes"},
    {YAML::ErrorMsg::ALIAS_NOT_FOUND, "a text that begins with * needs quotes"},
    {YAML::ErrorMsg::CHAR_IN_ALIAS, "a text that begins with * needs quotes"},
    {YAML::ErrorMsg::ALIAS_CONTENT, "an alias (*name) must be the whole value; a text that begins with * needs quotes"},
    {YAML::ErrorMsg::ANCHOR_NOT_FOUND, "a text that begins with & needs quotes"},
    {YAML::ErrorMsg::CHAR_IN_ANCHOR, "a text that begins with & needs quotes"},
    {YAML::ErrorMsg::MULTIPLE_ANCHORS, "a value has one anchor (&name); a text that begins with & needs quotes"},
    {YAML::ErrorMsg::MULTIPLE_TAGS, "a text that begins with ! needs quotes"},
    {YAML::ErrorMsg::END_OF_VERBATIM_TAG, "a text that begins with ! needs quotes"},
    {YAML::ErrorMsg::CHAR_IN_TAG_HANDLE, "a text that begins with ! needs quotes"},
    {YAML::ErrorMsg::TAG_WITH_NO_SUFFIX, "a text that begins with ! needs quotes"},
    {YAML::ErrorMsg::INVALID_ESCAPE, "no escape of double quotes; write a backslash twice, or use single quotes"},
    {YAML::ErrorMsg::INVALID_HEX,
     "\\x wants two hexadecimal digits, \\u four, \\U eight; write a backslash twice, or use single quotes"},
    {YAML::ErrorMsg::INVALID_UNICODE, "this escape names no character"},
    {YAML::ErrorMsg::DOC_IN_SCALAR, "--- or ... inside quotes; is a quote missing above?"},
    {YAML::ErrorMsg::EOF_IN_SCALAR, "the file ends inside quotes; is a quote missing above?"},
    {YAML::ErrorMsg::ZERO_INDENT_IN_BLOCK,
     "the indentation after | or > must be 1 to 9; a text that begins with | or > needs quotes"},
    {YAML::ErrorMsg::CHAR_IN_BLOCK, "the line must end after | or >; a text that begins with | or > needs quotes"},
};

// Reports `a: b: c`, or a key below a line that cannot have keys.
[[noreturn]] void fail_value(const SourceText& source, size_t colon) {
  const std::string_view line = source.line_at(colon), before = line.substr(0, colon - begin_of(source, line));
  if (before.find(": ") != std::string_view::npos)
    source.fail(colon, "a second ': ' in this line; put quotes around a text that holds one");
  source.fail(begin_of(source, line) + std::min(before.find_first_not_of(" \t"), before.size()),
              "a key that continues the text above it; check its indentation, and whether a ':' is missing above");
}

// `open`: the [ or { that contains the error; `pos`: the position at which the error was found.
[[noreturn]] void fail_bracket(const SourceText& source, std::optional<size_t> open, size_t pos) {
  if (!open) source.fail(pos, "this bracket closes none; a text that begins with it needs quotes");
  const bool list = source.text()[*open] == '[';
  if (source.bracket_closes(*open))
    source.fail(pos, str("a ',' is missing in front of this, or quotes around a text with ': ', inside ",
                         list ? "[ ]" : "{ }"));
  source.fail(*open, list ? "'[' is never closed by ']'" : "'{' is never closed by '}'");
}

}  // namespace

void check_directives(const SourceText& source, const std::vector<std::pair<size_t, size_t>>& quotes) {
  const std::string& text = source.text();
  std::optional<size_t> directive;  // not yet followed by ---
  bool head = true;
  for (size_t begin = 0; begin < text.size(); begin = std::min(text.find('\n', begin), text.size() - 1) + 1) {
    const std::string_view line = std::string_view(text).substr(begin);
    if (line[0] == '%') {
      const auto after = std::upper_bound(quotes.begin(), quotes.end(), std::pair{begin, begin});  // quotes are sorted
      if (after != quotes.begin() && begin < std::prev(after)->second) continue;
      if (!head || !(line.starts_with("%YAML ") || line.starts_with("%TAG ")))
        source.fail(begin, "a line that begins with % is a YAML directive; a key that begins with % needs quotes");
      directive = begin;
    } else if (line.starts_with("---")) {
      directive.reset();
      head = false;
    } else if (line[0] != '#' && line[0] != '\n' && line[0] != '\r') {
      head = false;
    }
  }
  if (directive) source.fail(*directive, "a YAML directive must be followed by a line ---");
}

void fail_loose(const SourceText& source, size_t pos) {
  const std::string_view line = source.line_at(pos);
  if (line.substr(0, pos - begin_of(source, line)).find_first_not_of(" \t") != std::string_view::npos)
    source.fail(pos, "this text follows a value that has ended; put quotes around all of it, or around none");
  source.fail(pos, "this line belongs to nothing above it; check its indentation");
}

void fail_syntax(const SourceText& source, const YAML::Exception& error, std::optional<size_t> open) {
  const size_t pos = error.mark.is_null() ? 0 : static_cast<size_t>(error.mark.pos);
  const std::string_view line = source.line_at(pos);
  const size_t content = line.find_first_not_of(" \t");
  const size_t tab = line.substr(0, std::min(content, line.size())).find('\t');
  if (content != std::string_view::npos && tab != std::string_view::npos)
    source.fail(begin_of(source, line) + tab, "a tab indents this line; YAML requires spaces");
  const std::string& what = error.msg;
  if (what == YAML::ErrorMsg::END_OF_MAP || what == YAML::ErrorMsg::END_OF_SEQ) fail_loose(source, pos);
  std::string hint;
  if (line.find("???") != std::string_view::npos) hint = "; inside [ ] or { } write it in quotes";
  if (line.find("${") != std::string_view::npos) hint = "; inside [ ] or { } write '${...}' in quotes";
  if (hint.empty() && what == YAML::ErrorMsg::MAP_VALUE) fail_value(source, pos);
  if (hint.empty() && (what == YAML::ErrorMsg::END_OF_SEQ_FLOW || what == YAML::ErrorMsg::END_OF_MAP_FLOW ||
                       what == YAML::ErrorMsg::FLOW_END))
    fail_bracket(source, open, pos);
  const auto words =
      std::find_if(std::begin(kInWords), std::end(kInWords), [&](const auto& w) { return what.starts_with(w.first); });
  source.fail(pos, words == std::end(kInWords) || !hint.empty() ? str("not valid YAML: ", what, hint) : words->second);
}

}  // namespace lmx::config
