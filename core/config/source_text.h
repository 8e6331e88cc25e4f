// The text of a YAML file, to check what yaml-cpp reports against what is written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

// Positions are byte offsets, as yaml-cpp counts them.
class SourceText {
 public:
  // UserError when the text is too large, not UTF-8, or holds control characters. A byte order mark is dropped.
  SourceText(std::string_view text, std::string file);

  const std::string& text() const { return text_; }
  Mark mark(size_t pos) const;  // columns count characters, not bytes
  [[noreturn]] void fail(size_t pos, const std::string& problem) const;
  std::string_view line_at(size_t pos) const;

  size_t skip_properties(size_t pos) const;                        // behind `&anchor` and `!tag`
  size_t end_of_quote(size_t pos) const;                           // behind the closing quote, npos when there is none
  bool quote_closes(size_t pos) const;                             // true as well when no quote stands at pos
  bool bracket_closes(size_t pos) const;                           // the [ or { at pos, by its own counterpart
  bool starts_with_null(size_t pos) const;                         // `~` or null as a word
  bool colon_follows(size_t key_pos, std::string_view key) const;  // behind the key that starts at key_pos

 private:
  void check_characters() const;

  std::string text_, file_;
  std::vector<size_t> line_starts_;
  // Where the last column was counted: events come in order, and a long line must not be counted again for each.
  mutable size_t counted_pos_ = 0, counted_line_ = 0, counted_characters_ = 0;
};

// Bytes of a key. YAML wants a key with its quotes and escapes within 1024 characters of its line.
inline constexpr size_t kMaxKey = 200;

std::string read_text(const std::string& path);  // UserError when it cannot be read

}  // namespace lmx::config
