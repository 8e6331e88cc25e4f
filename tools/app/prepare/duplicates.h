// Strings that a text has more than once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

// Finds the strings that equal an earlier one, whatever stands between them. Equal are strings of the same XXH3-128;
// two different ones among 100 million share it with a probability of 10^-23. Memory: 6 MB, a bit for each line and 0.1
// bytes for each string; what does not fit in goes to `directory`, 24 bytes a string.
class DuplicateFinder {
 public:
  explicit DuplicateFinder(std::string directory);
  ~DuplicateFinder();                             // removes its files
  void add(std::string_view text, int64_t line);  // from any thread; each line once
  // The lines to leave out: result[line] is true where a string with a lower line is equal. RunError: the disk.
  std::vector<bool> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx::data
