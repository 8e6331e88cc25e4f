#include "cli/output/terminal_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "app/print/words.h"
#include "app/run/shipped.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app::cli {
namespace {

// The number of bytes before a character or a colour that the text may not contain completely.
size_t complete_length(const std::string& text) {
  constexpr size_t kLongestColour = 16, kLongestCharacter = 4;
  const size_t escape = text.rfind('\033');
  if (escape != std::string::npos && text.size() - escape < kLongestColour &&
      text.find_first_not_of("[0123456789;", escape + 1) == std::string::npos)
    return escape;
  for (size_t back = 1; back <= std::min(kLongestCharacter, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return text.size();
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 0;  // 0: it continues a character
    if (length > 0) return back < length ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

TerminalOutput::TerminalOutput() {
  if (isatty(STDOUT_FILENO)) before_ = std::cout.rdbuf(this);
}

TerminalOutput::~TerminalOutput() {
  if (!before_) return;
  write(pending_.size());
  std::cout.rdbuf(before_);
}

TerminalOutput::int_type TerminalOutput::overflow(int_type c) {
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

std::streamsize TerminalOutput::xsputn(const char* text, std::streamsize n) {
  pending_.append(text, static_cast<size_t>(n));
  return write(complete_length(pending_)) ? n : 0;
}

int TerminalOutput::sync() {
  return write(pending_.size()) && std::fflush(stdout) == 0 ? 0 : -1;
}

bool TerminalOutput::write(size_t bytes) {
  const std::string shown = printable_with_colours(pending_.substr(0, bytes));
  pending_.erase(0, bytes);
  return std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
}

namespace {

// Returns the text before the caret: as wide as the text before the column, with the same tabs.
std::string padding(const std::string& line, size_t column) {
  std::string pad;
  size_t seen = 1;  // columns count characters
  for (size_t i = 0; i < line.size() && seen < column; ++i) {
    if ((line[i] & 0xC0) == 0x80) continue;
    pad += line[i] == '\t' ? '\t' : ' ';
    ++seen;
  }
  return pad;
}

// Shortens a long line to the part around its column, so that the caret is visible.
void shorten(std::string& line, size_t& column, size_t width) {
  if (line.size() <= width) return;
  size_t begin = column > width / 2 ? column - width / 2 : 0;
  while (begin > 0 && (line[begin] & 0xC0) == 0x80) --begin;
  size_t end = std::min(line.size(), begin + width);
  while (end < line.size() && (line[end] & 0xC0) == 0x80) ++end;
  const auto cut = static_cast<size_t>(std::count_if(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     [](char c) { return (c & 0xC0) != 0x80; }));
  const std::string head = begin > 0 ? "..." : "";
  line = head + line.substr(begin, end - begin) + (end < line.size() ? "..." : "");
  column = column - cut + head.size();
}

std::string line_of(const std::string& file, size_t number) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return "";
  std::ifstream in(file);
  std::string line;
  for (size_t i = 0; i < number; ++i)
    if (!std::getline(in, line)) return "";
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

std::string excerpt(std::string line, size_t column, const std::string& number) {
  const std::string margin = std::string(number.size(), ' ');
  constexpr size_t kMost = 110;  // columns of the line
  const size_t columns = terminal_columns(STDERR_FILENO), beside = margin.size() + 5, dots = 6;
  shorten(line, column, columns > beside + dots ? std::min(kMost, columns - beside - dots) : kMost);
  return str("\n  ", number, " | ", line, "\n  ", margin, " | ", padding(line, column), "^");
}

// Reads a number such as "12" in "12: ..." at `at`, and moves `at` after it. nullopt: no number, or more than six
// digits.
std::optional<size_t> number_at(const std::string& text, size_t& at) {
  const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
  if (end == at || end - at > 6) return std::nullopt;
  const size_t value = std::stoul(text.substr(at, end - at));
  at = end;
  return value;
}

struct Place {
  size_t begin = 0;  // in the message
  std::string text;  // a file, or the override itself
  size_t line = 0, column = 0;
};

// Returns the first "FILE:12:3: " of a message. Messages may contain user input of any length. std::regex is recursive
// for each character and could overflow the stack.
std::optional<Place> file_place(const std::string& message) {
  for (size_t colon = message.find(':'); colon != std::string::npos; colon = message.find(':', colon + 1)) {
    size_t at = colon + 1;
    const auto line = number_at(message, at);
    if (!line || message.compare(at, 1, ":") != 0) continue;
    const auto column = number_at(message, ++at);
    if (!column || message.compare(at, 2, ": ") != 0) continue;
    const size_t before = colon == 0 ? std::string::npos : message.find_last_of(" \t\r\n\v\f:'\"", colon - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    if (begin < colon) return Place{begin, message.substr(begin, colon - begin), *line, *column};
  }
  return std::nullopt;
}

// Returns the first "override 'TEXT': column 3: ", with the longest possible TEXT.
std::optional<Place> override_place(const std::string& message) {
  constexpr std::string_view kOpen = "override '", kClose = "': column ";
  const size_t begin = message.find(kOpen);
  if (begin == std::string::npos) return std::nullopt;
  for (size_t close = message.rfind(kClose); close != std::string::npos && close > begin && close > 0;
       close = message.rfind(kClose, close - 1)) {
    size_t at = close + kClose.size();
    const auto column = number_at(message, at);
    const size_t text = begin + kOpen.size();
    if (column && close >= text && message.compare(at, 2, ": ") == 0)
      return Place{begin, message.substr(text, close - text), 0, *column};
  }
  return std::nullopt;
}

std::string excerpt_of(const std::string& message) {
  const std::optional<Place> placed = file_place(message), typed = override_place(message);
  // For an override in a file, the message has the position in the file first.
  if (typed && (!placed || typed->begin < placed->begin)) return excerpt(typed->text, typed->column, " ");
  if (!placed) return "";
  const std::string line = line_of(placed->text, placed->line);
  return line.empty() ? "" : excerpt(line, placed->column, std::to_string(placed->line));
}

}  // namespace

std::string with_excerpts(const std::string& message) {
  std::istringstream lines(message);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += (out.empty() ? "" : "\n") + line + excerpt_of(line);
  return out;
}

namespace {

namespace fs = std::filesystem;

// Returns whether the list was written in another file than the recipe. A list of the command line has no file.
bool is_inherited(const Node& list, const std::string& recipe) {
  std::error_code error;
  return fs::exists(list.mark.file, error) && !fs::equivalent(list.mark.file, recipe, error);
}

// Returns the words of a line with their values; nothing if a file beside the recipe does not exist.
std::vector<std::string> words_of(const std::string& line, const fs::path& folder, const NextLines::Words& values) {
  constexpr std::string_view kFolder = "FOLDER/";
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    if (word == "lmx" && words.empty()) {
      word = values.command;
    } else if (word == "RECIPE") {
      word = values.recipe;
    } else if (word == "RUN") {
      word = values.run;
    } else if (word.starts_with(kFolder)) {
      const fs::path file = folder / word.substr(kFolder.size());
      std::error_code error;
      if (!fs::exists(file, error)) return {};
      word = shell_quoted(recipe_name(file.string()));
    }
    words.push_back(word);
  }
  return words;
}

}  // namespace

NextLines::NextLines(const Node& composed, const std::string& file) : folder_(fs::path(file).parent_path().string()) {
  const Node* list = composed.at_path("provenance.next");
  if (!list || list->kind == Node::Kind::null) return;
  const auto refuse = [](const Node& node) {
    throw UserError(
        str(config::at(node.mark, "provenance.next"), "expected a list of lines, got ", config::describe_value(node)));
  };
  if (list->kind != Node::Kind::list) refuse(*list);
  for (const Node& item : list->items)
    if (item.kind != Node::Kind::scalar) refuse(item);
  if (is_inherited(*list, file)) return;
  for (const Node& item : list->items) lines_.push_back(item.text);
}

std::vector<std::string> NextLines::lines(const Words& words) const {
  std::vector<std::string> all;
  for (const std::string& line : lines_)
    if (const std::vector<std::string> replaced = words_of(line, folder_, words); !replaced.empty())
      all.push_back(config::join(replaced, " "));
  return all;
}

}  // namespace lmx::app::cli
