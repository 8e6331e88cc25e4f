// Cleans a string before it is tokenized (`data.preprocess`): HTML, and the conversion to ASCII.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lmx::app {

// Converts any text to ASCII, character by character, like Python's unidecode; docs/data.md lists the differences.

// Caches its results, so each thread needs its own object.
class AsciiFolder {
 public:
  AsciiFolder();  // RunError: ICU lacks its data
  ~AsciiFolder();
  AsciiFolder(AsciiFolder&&) noexcept;
  // Returns `text` in ASCII. Leaves out unknown characters and bytes that are not UTF-8.
  std::string fold(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Cleans a string before it is tokenized (`data.preprocess`).

// Applies the cleaning of Puri 2018, like the paper's code: removes tags, converts to ASCII, converts HTML's character
// references, reduces white space to single spaces, and adds "\n " at the start and " " at the end. Returns nothing for
// a string without a word. Removes bytes that are not UTF-8. Contains an AsciiFolder, so each thread needs its own
// object.
class Cleaner {
 public:
  explicit Cleaner(bool puri);
  // Returns `text` itself or its cleaned form, which is valid until the next call.
  std::string_view clean(std::string_view text);

 private:
  std::optional<AsciiFolder> ascii_;  // only if `puri` is set
  std::string out_;
};

// Handles the part of HTML that occurs in reviews: tags and character references.

// Replaces each shortest `<...>` without a line end by a space.
std::string without_tags(std::string_view text);

// Replaces `&amp;` `&#233;` `&#xE9;` `&eacute` by characters, according to HTML 5: numbers with or without a semicolon;
// names of HTML 4 (and `&apos;`) with one, those of Latin-1 and `&amp &lt &gt &quot` also without. Others stay
// unchanged.
std::string unescape_html(std::string_view text);

}  // namespace lmx::app
