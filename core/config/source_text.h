// The text of a YAML file, with which yaml-cpp's events are checked and completed.
#pragma once

#include <yaml-cpp/exceptions.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// Line ends that yaml-cpp 0.7 loses at the end of a scalar.

// `value`: the text that yaml-cpp has read for the quoted or block scalar that begins at `pos`. Returns it with the
// line ends that YAML 1.2 keeps and yaml-cpp drops: those of blank lines before a closing quote, and after a text
// folded by `>+`.
std::string with_line_ends(const SourceText& source, size_t pos, std::string value);

// Reports text that is not valid YAML, or whose meaning differs from its appearance. The messages suggest a correction;
// those of yaml-cpp ("illegal map value") describe the state of its parser.

// yaml-cpp ignores each line that begins with %, but YAML allows directives only before `---`. `quotes`: begin and end
// of each text in quotes, in order; a line inside quotes is no directive.
void check_directives(const SourceText& source, const std::vector<std::pair<size_t, size_t>>& quotes);

// Reports text at `pos` that belongs to no map or list.
[[noreturn]] void fail_loose(const SourceText& source, size_t pos);

// Reports a syntax error of yaml-cpp. `open`: the innermost open bracket at the error.
[[noreturn]] void fail_syntax(const SourceText& source, const YAML::Exception& error, std::optional<size_t> open);

}  // namespace lmx::config
