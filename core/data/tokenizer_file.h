// The size of a tokenizer's vocabulary, without the library that reads the tokenizer.
#pragma once

#include <cstdint>
#include <string>

namespace lmx {

// Returns the number of ids of a `.model` of SentencePiece or of a `tokenizer.json`. UserError: the file is missing or
// neither of them.
int64_t tokenizer_entries(const std::string& path);
// UserError, beginning with `place`: the number differs from `vocab_size`. Checks nothing if `path` is empty.
void check_entries(const std::string& path, int64_t vocab_size, const std::string& place);

}  // namespace lmx
