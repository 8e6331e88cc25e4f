// Finds strings that occur more than once in a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

// Finds the strings that equal an earlier one, at any distance. Strings with the same XXH3-128 count as equal; two
// different ones among 100 million share it with a probability of 10^-23. Memory: 6 MB, plus one bit per line and 0.1
// bytes per string. The remaining data is written to `directory`, 24 bytes per string.
class DuplicateFinder {
 public:
  explicit DuplicateFinder(std::string directory);
  ~DuplicateFinder();
  void add(std::string_view text, int64_t line);  // from any thread; each line once
  // Returns the lines to leave out: result[line] is true if the string of a lower line is equal. RunError: a disk
  // error.
  std::vector<bool> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx::data
