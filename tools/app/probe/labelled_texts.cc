// Labelled texts from CSV and JSON lines.
#include <algorithm>
#include <set>

#include "app/corpora/formats.h"
#include "app/corpora/sources.h"
#include "app/probe/transfer.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx {
namespace {

// Returns the words of labels 0 and 1: these digits, or two other words, the smaller one first.
std::vector<std::string> classes_of(const std::vector<std::string>& words, const std::string& path) {
  const std::set<std::string> distinct(words.begin(), words.end());
  const std::vector<std::string> all(distinct.begin(), distinct.end());
  if (std::all_of(all.begin(), all.end(), [](const std::string& w) { return w == "0" || w == "1"; })) return {"0", "1"};
  if (all.size() == 2) return all;
  const std::vector<std::string> some(all.begin(), all.begin() + std::min<std::ptrdiff_t>(5, std::ssize(all)));
  throw UserError(str("[features] ", path, " has ", all.size(), all.size() == 1 ? " label (" : " different labels (",
                      config::join(some), all.size() > 5 ? ", ..." : "", "); a probe separates two classes",
                      all.size() == 1 ? "; --classes names both if a file contains only one of them" : ""));
}

void set_labels(LabelledTexts& texts, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != texts.classes[0] && words[i] != texts.classes[1])
      throw UserError(str("[features] ", texts.places[i], ": label '", words[i], "'; the classes are '",
                          texts.classes[0], "' and '", texts.classes[1], "'"));
    texts.labels.push_back(words[i] == texts.classes[1]);
  }
}

// A label may also be an integer.
LabelledTexts read_json_lines(const std::string& path, const std::string& text, const std::string& label,
                              std::vector<std::string>& words) {
  const std::string content = read_file(path, Content::text);
  LabelledTexts out;
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view line = std::string_view(content).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    out.places.push_back(str(path, ":", number));
    out.texts.push_back(data::json_field(line, text, out.places.back()));
    if (!label.empty()) words.push_back(data::json_field(line, label, out.places.back(), true));
  }
  return out;
}

LabelledTexts read_csv(const std::string& path, const std::string& text, const std::string& label,
                       std::vector<std::string>& words) {
  const std::string content = read_file(path, Content::text);
  data::CsvReader reader(content);
  std::vector<std::string> fields;
  LabelledTexts out;
  static_cast<void>(reader.next(fields));
  const auto text_column = static_cast<size_t>(data::csv_column(fields, path, text));
  const size_t label_column = label.empty() ? text_column : static_cast<size_t>(data::csv_column(fields, path, label));
  while (reader.next(fields)) {
    if (!reader.closed() || fields.size() <= std::max(text_column, label_column))
      throw UserError(str("[features] ", path, ":", reader.line() + 1, ": ",
                          reader.closed() ? str("a record of ", fields.size(), " fields; column '", text, "' or '",
                                                label, "' is missing")
                                          : std::string("a quoted field begins here and does not end")));
    out.texts.push_back(fields[text_column]);
    out.places.push_back(str(path, ":", reader.line() + 1));
    words.push_back(fields[label_column]);
  }
  return out;
}

}  // namespace

LabelledTexts read_labelled(const std::string& path, const std::string& text, const std::string& label,
                            const std::vector<std::string>& classes) {
  std::vector<std::string> words;
  const bool json = data::format_of(path) == data::Format::jsonl;
  LabelledTexts out = json ? read_json_lines(path, text, label, words) : read_csv(path, text, label, words);
  if (out.texts.empty())
    throw UserError(str("[features] ", path, " holds no text", json ? "" : " below its first line"));
  if (label.empty()) return out;
  out.classes = classes.empty() ? classes_of(words, path) : classes;
  set_labels(out, words);
  return out;
}

}  // namespace lmx
