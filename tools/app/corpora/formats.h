// The formats of corpora: records of CSV and JSON lines, SGML, and archives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

// Records of CSV (RFC 4180: quoted fields may contain commas, line ends and doubled quotes) and of JSON lines.

// Reads the records of a text one after the other.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}
  // Reads the next record into `fields`; false at the end. Skips empty lines.
  bool next(std::vector<std::string>& fields);
  // Properties of the record that next() read last:
  int64_t line() const { return line_; }         // number of lines before it in the text
  std::string_view raw() const { return raw_; }  // its unchanged text, without the line end
  bool closed() const { return closed_; }        // false: a quoted field has no end

 private:
  void read_field(std::string& field);
  std::string_view text_, raw_;
  size_t at_ = 0;
  int64_t line_ = 0, next_line_ = 0;
  bool closed_ = true;
};

// Returns the position after the last line end of `text` that ends a record; npos if there is none. REQUIRES: `text`
// starts with a new record.
size_t csv_records_end(std::string_view text);

// Returns the position of `column` in the header of the CSV file at `path`, from 0. UserError: no such column; the
// message lists the columns.
int64_t csv_column(const std::string& path, const std::string& column);
// The same for a header that has already been read.
int64_t csv_column(const std::vector<std::string>& header, const std::string& path, const std::string& column);

// Returns the string `field` of a JSON object. `place` is its position for messages ("FILE:LINE"). UserError: not a
// JSON object, no such field, not a string. With `numbers`, an integer is also accepted and returned as its digits.
std::string json_field(std::string_view line, const std::string& field, const std::string& place, bool numbers = false);

// Extracts the sentences of WMT's development and test sets from SGML.

// Returns one line for each `<seg ...> ... </seg>`, in their order. White space becomes single spaces and is removed at
// the ends; character references become characters. An empty segment becomes an empty line, so that both sides stay
// aligned. UserError, starting with `name`: a segment without an end, or no segment.
std::string lines_of_segments(std::string_view sgml, const std::string& name);

// Unpacks the archives of corpora.

// Extracts the regular files of a .tar or .tar.gz below `folder`, without the first `strip` folders of their names.
// Each file is written under a temporary name and renamed when it is complete. Returns their names. UserError: a
// damaged archive, or a name outside of `folder`. RunError: a full disk.
std::vector<std::string> unpack_tar(const std::string& archive, const std::string& folder, int64_t strip);
// Decompresses a .gz file into `path`.
void unpack_gz(const std::string& archive, const std::string& path);

}  // namespace lmx::data
