// The text of a YAML file. Used to check yaml-cpp's events against the source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

// Positions are byte offsets, as yaml-cpp counts them.
class SourceText {
 public:
  // UserError if the text is too large, is not UTF-8, or contains control characters. A byte order mark is dropped.
  SourceText(std::string_view text, std::string file);

  const std::string& text() const { return text_; }
  Mark mark(size_t pos) const;  // columns count characters, not bytes
  [[noreturn]] void fail(size_t pos, const std::string& problem) const;
  std::string_view line_at(size_t pos) const;

  size_t skip_properties(size_t pos) const;                        // position after `&anchor` and `!tag`
  size_t end_of_quote(size_t pos) const;                           // position after the closing quote, or npos
  bool quote_closes(size_t pos) const;                             // also true if there is no quote at pos
  bool bracket_closes(size_t pos) const;                           // whether its counterpart closes the [ or { at pos
  bool starts_with_null(size_t pos) const;                         // `~` or null as a word
  bool colon_follows(size_t key_pos, std::string_view key) const;  // whether a ':' follows the key at key_pos

 private:
  void check_characters() const;

  std::string text_, file_;
  std::vector<size_t> line_starts_;
  // Cache of the last counted column: events come in order, and a long line must not be counted again for each event.
  mutable size_t counted_pos_ = 0, counted_line_ = 0, counted_characters_ = 0;
};

// Maximum bytes of a key. YAML requires a key, with its quotes and escapes, to end within 1024 characters of its line.
inline constexpr size_t kMaxKey = 200;

std::string read_text(const std::string& path);  // UserError if it cannot be read

}  // namespace lmx::config
