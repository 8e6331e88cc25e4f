// A file of ids that another program has written, such as llm.c or nanoGPT (docs/subwords.md).
#pragma once

#include <cstdint>
#include <string>

#include "lmx/data.h"

namespace lmx::app {

// The ids of a file of `bytes` bytes. `format`: llmc, raw16 or raw32. UserError: a header of another format, or a size
// that differs from the header's.
TokenArray::Part token_part(const std::string& path, int64_t bytes, const std::string& format);
// Checks blocks of 4,096 ids: all of them, or the first, the last and every 64th. UserError: an id that is not below
// the vocabulary.
void check_ids(const TokenArray::Part& part, int64_t vocabulary, bool all);
// Returns the width and number of ids, and hashes of the header and of the ids in the middle: a hash of all bytes would
// take minutes for 20 GB.
std::string token_hash(const TokenArray::Part& part);

}  // namespace lmx::app
