#include "app/text/lines.h"

#include <cstring>

#include "app/text/utf8.h"

namespace lmx {
namespace data {

LineReader::LineReader(const std::string& path)
    : name_(path == "-" ? "standard input" : path), file_(path, Content::text), buffer_(1 << 16) {}

void refuse_long_line(const std::string& name, int64_t line) {
  throw UserError(str("[data] ", name, ":", line, ": this line has more than ", kLongestLine >> 20,
                      " MB; is it text with line ends?"));
}

std::optional<std::string> LineReader::next() {
  std::string line;
  bool found = false;
  while (!found) {
    if (at_ == end_) {
      at_ = 0;
      end_ = file_.read_some(buffer_.data(), buffer_.size());
      if (end_ == 0 && line.empty()) return std::nullopt;
      if (end_ == 0) break;
    }
    const char* begin = buffer_.data() + at_;
    const auto* stop = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
    found = stop != nullptr;
    const size_t n = found ? static_cast<size_t>(stop - begin) : end_ - at_;
    line.append(begin, n);
    at_ += n + found;
    if (line.size() > data::kLongestLine) refuse_long_line(name_, lines_ + 1);
  }
  ++lines_;
  const size_t wrong = find_invalid_utf8(line);
  if (wrong != kValidUtf8) refuse_invalid_utf8(name_, lines_, file_.skipped() + offset_, line, wrong);
  offset_ += static_cast<int64_t>(line.size()) + found;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace data

Lines read_lines(const std::string& path) {
  data::LineReader reader(path);
  Lines lines;
  while (auto line = reader.next()) lines.push_back(*std::move(line));
  return lines;
}

}  // namespace lmx
