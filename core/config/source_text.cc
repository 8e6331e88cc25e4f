#include "config/source_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/utf8.h"
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

}  // namespace

std::string read_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UserError(str(path, ": is a folder, not a recipe"));
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

}  // namespace lmx::config
