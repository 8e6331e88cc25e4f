// Records of CSV (RFC 4180: quoted fields may hold commas, line ends and doubled quotes) and of JSON lines.
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
  // Puts the next record into `fields`; false at the end. Lines without a character are passed over.
  bool next(std::vector<std::string>& fields);
  // Of the record that next() read last.
  int64_t line() const { return line_; }         // lines of the text before it
  std::string_view raw() const { return raw_; }  // as it stands in the text, without its line end
  bool closed() const { return closed_; }        // false: a quoted field of it has no end

 private:
  void read_field(std::string& field);
  std::string_view text_, raw_;
  size_t at_ = 0;
  int64_t line_ = 0, next_line_ = 0;
  bool closed_ = true;
};

// One past the last line end of `text` that ends a record, npos where there is none. REQUIRES: `text` begins a record.
size_t csv_records_end(std::string_view text);

// The position of `column` in the header of the CSV file at `path`, from 0. UserError names the columns that it has.
int64_t csv_column(const std::string& path, const std::string& column);
// The same of a header that has been read.
int64_t csv_column(const std::vector<std::string>& header, const std::string& path, const std::string& column);

// The string `field` of a JSON object, which stands at `place` ("FILE:LINE"). UserError: no JSON object, no such field,
// no string. With `numbers` a whole number is taken as its digits.
std::string json_field(std::string_view line, const std::string& field, const std::string& place, bool numbers = false);

}  // namespace lmx::data
