// The strings that a chunk of a file holds: its lines, or a field of its records.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/corpora/sources.h"

namespace lmx::data {

struct Record {
  std::string_view text;  // valid during the visit alone
  std::string_view raw;   // where it was read: a line or record of the chunk
  int64_t line = 0;       // of the chunk, 0-based, where `raw` begins
};

// UserError: a record of CSV without the column or without an end, a line that is no JSON object with the field.
void for_each_record(const SourceFile& file, const Chunk& chunk, const std::function<void(const Record&)>& visit);

// Throws the UserError for the first byte of record.raw that is not UTF-8. REQUIRES: there is one.
[[noreturn]] void refuse_invalid_utf8(const SourceFile& file, const Chunk& chunk, std::string_view raw);

}  // namespace lmx::data
