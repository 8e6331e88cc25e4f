// The output of translations and scores: a file or standard output.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"

namespace lmx::train {

class TextOutput {
 public:
  explicit TextOutput(const std::string& path);  // `-`: standard output
  // When it returns, the whole text has been written. RunError: a full disk, a closed pipe.
  void write(std::string_view text);
  void close();

 private:
  std::unique_ptr<OutputFile> file_;
};

}  // namespace lmx::train
