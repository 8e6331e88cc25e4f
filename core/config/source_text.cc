#include "config/source_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "config/messages.h"

namespace lmx::config {

constexpr size_t kMaxBytes = size_t{16} << 20;

SourceText::SourceText(std::string_view text, std::string file) : file_(std::move(file)) {
  if (text.size() > kMaxBytes)
    throw UserError(str(file_, ": larger than ", kMaxBytes >> 20, " MiB; is this a recipe?"));
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text_ = text;
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i)
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  check_characters();
}

void SourceText::check_characters() const {
  const size_t invalid = for_each_code_point(text_, [&](size_t at, char32_t code) {
    if ((code < 0x20 && code != '\t' && code != '\n' && code != '\r') || code == 0x7f)
      fail(at, str("a control character (code ", static_cast<int>(code), "); write it in double quotes as \\x.."));
  });
  if (invalid != kValidUtf8) fail(invalid, "not UTF-8 text");
}

Mark SourceText::mark(size_t pos) const {
  pos = std::min(pos, text_.size());
  const auto next = std::upper_bound(line_starts_.begin(), line_starts_.end(), pos);
  const auto line = static_cast<size_t>(next - line_starts_.begin());
  if (line != counted_line_) {
    counted_line_ = line;
    counted_pos_ = line_starts_[line - 1];
    counted_characters_ = 0;
  }
  for (; counted_pos_ < pos; ++counted_pos_) counted_characters_ += (text_[counted_pos_] & 0xC0) != 0x80;
  for (; counted_pos_ > pos; --counted_pos_) counted_characters_ -= (text_[counted_pos_ - 1] & 0xC0) != 0x80;
  return {file_, static_cast<int>(line), static_cast<int>(counted_characters_) + 1};
}

void SourceText::fail(size_t pos, const std::string& problem) const {
  throw UserError(at(mark(pos)) + problem);
}

std::string_view SourceText::line_at(size_t pos) const {
  const size_t begin = line_starts_[static_cast<size_t>(mark(pos).line) - 1];
  const size_t end = std::min(text_.find('\n', begin), text_.size());
  return std::string_view(text_).substr(begin, end - begin);
}

size_t SourceText::skip_properties(size_t pos) const {
  while (pos < text_.size() && (text_[pos] == '&' || text_[pos] == '!')) {
    pos = std::min(text_.find_first_of(" \t\r\n", pos), text_.size());
    pos = std::min(text_.find_first_not_of(" \t\r\n", pos), text_.size());
  }
  return pos;
}

size_t SourceText::end_of_quote(size_t pos) const {
  const char quote = text_[pos];
  for (size_t i = pos + 1; i < text_.size(); ++i) {
    if (quote == '"' && text_[i] == '\\') {
      ++i;
    } else if (text_[i] == quote) {
      if (quote == '"' || i + 1 >= text_.size() || text_[i + 1] != '\'') return i + 1;
      ++i;  // '' inside single quotes
    }
  }
  return std::string_view::npos;
}

bool SourceText::quote_closes(size_t pos) const {
  if (pos >= text_.size() || (text_[pos] != '\'' && text_[pos] != '"')) return true;
  return end_of_quote(pos) != std::string_view::npos;
}

bool SourceText::bracket_closes(size_t pos) const {
  std::string open;
  for (size_t i = pos; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '[' || c == '{') open.push_back(c == '[' ? ']' : '}');
    if (c == ']' || c == '}') {
      if (open.back() != c) return false;
      open.pop_back();
      if (open.empty()) return true;
    }
    const bool begins_value = std::string_view("[{,: \t\n").find(text_[i == 0 ? 0 : i - 1]) != std::string_view::npos;
    if ((c == '"' || c == '\'') && begins_value) {
      i = end_of_quote(i);
      if (i-- == std::string_view::npos) return false;
    }
  }
  return false;
}

bool SourceText::starts_with_null(size_t pos) const {
  for (const std::string_view word : {"~", "null", "Null", "NULL"}) {
    if (text_.compare(pos, word.size(), word) != 0) continue;
    const size_t end = pos + word.size();
    if (end >= text_.size() || std::string_view(" \t\r\n,]}#").find(text_[end]) != std::string_view::npos) return true;
  }
  return false;
}

bool SourceText::colon_follows(size_t key_pos, std::string_view key) const {
  size_t end = key_pos;
  if (text_.compare(key_pos, key.size(), key) == 0) {
    end += key.size();
  } else if (key_pos < text_.size() && (text_[key_pos] == '\'' || text_[key_pos] == '"')) {
    end = end_of_quote(key_pos);
  } else {
    return true;  // a key folded over several lines: yaml-cpp has checked its colon
  }
  end = end == std::string_view::npos ? std::string_view::npos : text_.find_first_not_of(" \t", end);
  return end != std::string_view::npos && text_[end] == ':';
}

namespace {

// The file in the same folder whose name is most similar to the missing one; "" if no name is similar.
std::string nearest_file(const std::string& missing) {
  namespace fs = std::filesystem;
  const fs::path path = missing;
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path.has_parent_path() ? path.parent_path() : ".", error))
    if (entry.is_regular_file(error)) names.push_back(entry.path().filename().string());
  const std::string near = nearest(path.filename().string(), names);
  return near.empty() ? "" : str(" (did you mean '", (path.parent_path() / near).string(), "'?)");
}

// The recipe of a folder that `lmx new` has written; "" if it has none.
std::string own_recipe(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = (std::filesystem::path(folder) / "").parent_path();
  const std::filesystem::path file = path / (path.filename().string() + ".yaml");
  return std::filesystem::exists(file, error) ? str(" (did you mean '", file.string(), "'?)") : "";
}

}  // namespace

std::string read_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UserError(str(path, ": is a folder, not a recipe", own_recipe(path)));
  std::ifstream in(path, std::ios::binary);
  const std::string why = in ? "" : std::strerror(errno);
  if (!in) throw UserError(str(path, ": cannot be read: ", why, nearest_file(path)));
  std::string text, block(size_t{64} << 10, '\0');
  // A device such as /dev/zero has no end; SourceText rejects a text that is longer than this.
  while (text.size() <= kMaxBytes) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<size_t>(in.gcount()));
    if (!in) break;
  }
  return text;
}

namespace {

constexpr std::string_view kWhite = " \t\r\n";

size_t line_ends(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The end of the text inside quotes, after which only white space follows. An escaped blank (`\ `) is text.
size_t end_of_text(std::string_view inner, bool escapes) {
  const size_t last = inner.find_last_not_of(kWhite);
  if (last == std::string_view::npos) return 0;
  size_t i = 0;
  for (; escapes && i <= last; ++i)
    if (inner[i] == '\\') ++i;
  return std::max(std::min(i, inner.size()), last + 1);
}

// Before the closing quote, n line ends fold to n - 1 (YAML 1.2, 6.5), of which yaml-cpp keeps at most one. The text
// before them is parsed again, alone.
std::string with_ends_before_quote(std::string_view inner, char quote, std::string value) {
  const size_t end = end_of_text(inner, quote == '"');
  const size_t ends = line_ends(inner.substr(end));
  const bool escaped_end = end > 0 && inner[end - 1] == '\n';  // a backslash removes the line end
  if (ends < 2 || escaped_end) return value;
  std::string text(1, quote);
  text.append(inner.substr(0, end)) += quote;
  return parse_yaml(text, "").text.append(ends - 1, '\n');
}

size_t indentation_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Spaces before the key, or before the list item's '-', to which the block scalar at column `at` of the line belongs.
size_t parent_indentation(std::string_view line, size_t at) {
  size_t dash = 0, key = indentation_of(line);
  while (line.substr(key).starts_with("- ")) {
    dash = key;
    key = std::min(line.find_first_not_of(' ', key + 1), line.size());
  }
  return key == at ? dash : key;
}

// The number of blank lines after the last line of a block scalar. 0 if that line is indented further than the block,
// since yaml-cpp keeps the line ends in that case. `block`: the block's indentation, or std::string_view::npos if its
// first line decides.
size_t blank_lines_behind(std::string_view below, size_t block) {
  size_t blank = 0;
  bool deeper = false;
  while (!below.empty()) {
    const size_t end = std::min(below.find('\n'), below.size() - 1) + 1;
    const std::string_view line = below.substr(0, end);
    below.remove_prefix(end);
    const size_t indentation = indentation_of(line);
    if (line.find_first_not_of(kWhite) == std::string_view::npos) {
      const bool text = block != std::string_view::npos && std::min(line.find_first_of("\r\n"), line.size()) > block;
      deeper = deeper || text;  // blanks beyond the indentation are text
      blank = text ? 0 : blank + line.ends_with('\n');
      continue;
    }
    if (block == std::string_view::npos) block = indentation;
    if (indentation < block || block == 0) break;
    deeper = indentation > block || line[indentation] == '\t';
    blank = 0;
  }
  return block == std::string_view::npos || deeper ? 0 : blank;
}

}  // namespace

std::string with_line_ends(const SourceText& source, size_t pos, std::string value) {
  const std::string_view text = source.text();
  if (pos >= text.size()) return value;
  if (text[pos] == '\'' || text[pos] == '"') {
    const size_t end = source.end_of_quote(pos);
    const std::string_view inner = text.substr(pos + 1, end - pos - 2);
    return with_ends_before_quote(inner, text[pos], std::move(value));
  }
  const std::string_view header = source.line_at(pos);
  const auto begin = static_cast<size_t>(header.data() - text.data());
  const size_t at = pos - begin;
  const std::string_view style = header.substr(at, header.find_first_of(" \t\r", at) - at);
  if (style[0] != '>' || style.find('+') == std::string_view::npos) return value;
  const size_t digit = style.find_first_of("123456789");
  const size_t block = digit == std::string_view::npos
                           ? std::string_view::npos
                           : parent_indentation(header, at) + static_cast<size_t>(style[digit] - '0');
  const size_t below = begin + header.size() + 1;
  const size_t kept = value.size() - (value.find_last_not_of('\n') + 1);
  const size_t blank = below < text.size() ? blank_lines_behind(text.substr(below), block) : 0;
  // One line end for each blank line, and the line end of the text itself.
  if (kept < value.size() && blank > 0 && kept == blank) value += '\n';
  return value;
}

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
