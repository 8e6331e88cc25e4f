#include "app/corpora/csv.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::data {

// Reads from at_ to the comma or line end after the field.
void CsvReader::read_field(std::string& field) {
  field.clear();
  bool quoted = false;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      const bool doubled = quoted && at_ + 1 < text_.size() && text_[at_ + 1] == '"';
      if (doubled) {
        field.push_back('"');
        ++at_;
      } else if (quoted || field.empty()) {
        quoted = !quoted;
      } else {
        field.push_back('"');  // inside an unquoted field it is an ordinary character
      }
    } else if (!quoted && (c == ',' || c == '\n')) {
      break;
    } else {
      next_line_ += c == '\n';
      field.push_back(c);
    }
  }
  closed_ = closed_ && !quoted;
}

bool CsvReader::next(std::vector<std::string>& fields) {
  while (at_ < text_.size() && (text_[at_] == '\n' || text_.substr(at_).starts_with("\r\n"))) {
    at_ += text_[at_] == '\r' ? 2 : 1;
    ++next_line_;
  }
  if (at_ >= text_.size()) return false;
  const size_t begin = at_;
  line_ = next_line_;
  closed_ = true;
  size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == fields.size()) fields.emplace_back();
    read_field(fields[count]);
    more = at_ < text_.size() && text_[at_] == ',';
    at_ += more;
  }
  fields.resize(count);
  raw_ = text_.substr(begin, at_ - begin);
  if (at_ < text_.size()) {  // its line end
    ++at_;
    ++next_line_;
  }
  if (raw_.ends_with('\r')) {
    raw_.remove_suffix(1);
    if (fields.back().ends_with('\r')) fields.back().pop_back();
  }
  return true;
}

size_t csv_records_end(std::string_view text) {
  size_t end = std::string_view::npos;
  bool quoted = false, begins = true;  // in a quoted field; at the start of a field
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      const bool doubled = c == '"' && i + 1 < text.size() && text[i + 1] == '"';
      quoted = c != '"' || doubled;
      i += doubled;
      continue;
    }
    quoted = begins && c == '"';
    begins = c == ',' || c == '\n';
    if (c == '\n') end = i + 1;
  }
  return end;
}

int64_t csv_column(const std::string& path, const std::string& column) {
  InputFile file(path, Content::text);
  std::string head(1 << 16, '\0');
  head.resize(file.read(head.data(), head.size()));
  CsvReader reader(head);
  std::vector<std::string> header;
  static_cast<void>(reader.next(header));
  return csv_column(header, path, column);
}

int64_t csv_column(const std::vector<std::string>& header, const std::string& path, const std::string& column) {
  if (header.empty()) throw UserError(str("[data] ", path, " is empty; the first line of CSV names the columns"));
  const auto found = std::find(header.begin(), header.end(), column);
  if (found != header.end()) return found - header.begin();
  throw UserError(str("[data] ", path, " has no column '", column, "'", did_you_mean(column, header),
                      "; the columns of its first line are ", config::join(header)));
}

std::string json_field(std::string_view line, const std::string& field, const std::string& place, bool numbers) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& e) {
    const std::string what =
        e.what();  // "[json.exception...] parse error at line 1, column 9: ... - invalid string: ..."
    const size_t why = what.find(": ");
    throw UserError(str("[data] ", place, ":", e.byte,
                        ": not valid JSON: ", why == std::string::npos ? what : what.substr(why + 2)));
  }
  if (!object.is_object())
    throw UserError(str("[data] ", place, ": expected a JSON object a line, found '", line.substr(0, 60), "'"));
  const auto found = object.find(field);
  if (found == object.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) names.push_back(name);
    throw UserError(str("[data] ", place, " has no field '", field, "'", did_you_mean(field, names), "; it has ",
                        config::join(names)));
  }
  if (numbers && found->is_number_integer()) return found->dump();
  if (!found->is_string())
    throw UserError(str("[data] ", place, ": field '", field, "' is ", found->type_name(), ", not a string"));
  return *found;
}

}  // namespace lmx::data
