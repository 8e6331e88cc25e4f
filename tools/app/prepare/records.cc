#include "app/prepare/records.h"

#include "app/corpora/csv.h"
#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

std::string place(const SourceFile& file, const Chunk& chunk, int64_t line) {
  return str(file.path, ":", chunk.file_line + line);
}

void visit_csv(const SourceFile& file, const Chunk& chunk, const std::function<void(const Record&)>& visit) {
  CsvReader reader(chunk.text);
  std::vector<std::string> fields;
  if (chunk.file_line == 1) static_cast<void>(reader.next(fields));  // the header
  while (reader.next(fields)) {
    if (!reader.closed())
      throw UserError(str("[data] ", place(file, chunk, reader.line()),
                          ": a record of CSV begins here whose quoted field does not end; is a quotation mark "
                          "unbalanced?"));
    if (static_cast<int64_t>(fields.size()) <= file.column)
      throw UserError(str("[data] ", place(file, chunk, reader.line()), ": a record of ", fields.size(),
                          fields.size() == 1 ? " field" : " fields", "; '", file.field, "' is column ",
                          file.column + 1));
    visit({fields[static_cast<size_t>(file.column)], reader.raw(), reader.line()});
  }
}

void visit_json(const SourceFile& file, const Chunk& chunk, const std::function<void(const Record&)>& visit) {
  for_each_line(chunk.text, [&](std::string_view line, int64_t number) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (find_invalid_utf8(line) != kValidUtf8) refuse_invalid_utf8(file, chunk, line);
    const std::string text = json_field(line, file.field, place(file, chunk, number));
    visit({text, line, number});
  });
}

}  // namespace

void for_each_record(const SourceFile& file, const Chunk& chunk, const std::function<void(const Record&)>& visit) {
  if (file.format == Format::csv) return visit_csv(file, chunk, visit);
  if (file.format == Format::jsonl) return visit_json(file, chunk, visit);
  for_each_line(chunk.text, [&](std::string_view line, int64_t number) { visit({line, line, number}); });
}

void refuse_invalid_utf8(const SourceFile& file, const Chunk& chunk, std::string_view raw) {
  const size_t bad = find_invalid_utf8(raw);
  LMX_CHECK(bad != kValidUtf8, "every byte is UTF-8");
  const auto begin = static_cast<size_t>(raw.data() - chunk.text.data());
  const auto line = std::count(chunk.text.begin(), chunk.text.begin() + static_cast<std::ptrdiff_t>(begin + bad), '\n');
  refuse_invalid_utf8(file.path, chunk.file_line + line, chunk.offset + static_cast<int64_t>(begin), raw, bad);
}

}  // namespace lmx::data
