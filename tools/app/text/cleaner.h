// What is done to a string before it becomes tokens (`data.preprocess`).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "app/text/ascii.h"

namespace lmx::data {

// Puri 2018 (as its code does it): tags out, ASCII, HTML's references as characters, white space to single spaces, "\n
// " in front and " " behind; nothing of a string without a word. Bytes that are not UTF-8 are left out. Holds what
// AsciiFolder holds, hence one a thread.
class Cleaner {
 public:
  explicit Cleaner(bool puri);
  // `text` itself, or what is made of it, which is valid until the next call.
  std::string_view clean(std::string_view text);

 private:
  std::optional<AsciiFolder> ascii_;  // of puri
  std::string out_;
};

}  // namespace lmx::data
