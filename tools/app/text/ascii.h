// Any text as ASCII, character by character, as Python's unidecode does; docs/data.md says where the two differ.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lmx::data {

// Holds what it has looked up, hence one a thread.
class AsciiFolder {
 public:
  AsciiFolder();  // RunError: ICU has no data for it
  ~AsciiFolder();
  AsciiFolder(AsciiFolder&&) noexcept;
  // `text` in ASCII. Characters that nothing is known of, and bytes that are not UTF-8, are left out.
  std::string fold(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx::data
