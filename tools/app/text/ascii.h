// Converts any text to ASCII, character by character, like Python's unidecode; docs/data.md lists the differences.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lmx::data {

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

}  // namespace lmx::data
