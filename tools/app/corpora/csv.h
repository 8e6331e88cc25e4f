// Records of CSV (RFC 4180: quoted fields may contain commas, line ends and doubled quotes) and of JSON lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

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

}  // namespace lmx::data
