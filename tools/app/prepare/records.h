// The strings in a chunk of a file: its lines, or a field of its records.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/corpora/sources.h"

namespace lmx::data {

struct Record {
  std::string_view text;  // valid only during the visit
  std::string_view raw;   // the line or record of the chunk that contains it
  int64_t line = 0;       // 0-based line in the chunk where `raw` begins
};

// UserError: a CSV record without the column or without an end, a line that is not a JSON object with the field.
void for_each_record(const SourceFile& file, const Chunk& chunk, const std::function<void(const Record&)>& visit);

// Throws the UserError for the first byte of record.raw that is not UTF-8. REQUIRES: such a byte exists.
[[noreturn]] void refuse_invalid_utf8(const SourceFile& file, const Chunk& chunk, std::string_view raw);

}  // namespace lmx::data
