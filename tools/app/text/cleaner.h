// Cleans a string before it is tokenized (`data.preprocess`).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "app/text/ascii.h"

namespace lmx::data {

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

}  // namespace lmx::data
