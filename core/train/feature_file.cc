// Labelled texts from CSV, and features to files and back.
#include <algorithm>
#include <charconv>
#include <set>

#include "config/messages.h"
#include "data/csv.h"
#include "data/files.h"
#include "lmx/checkpoint.h"
#include "lmx/error.h"
#include "lmx/transfer.h"

namespace lmx {
namespace {

// 0 and 1, or two other words of which the lesser one is 0.
std::vector<int> labels_of(const std::vector<std::string>& words, const std::string& path) {
  std::set<std::string> distinct(words.begin(), words.end());
  const bool numbers =
      std::all_of(distinct.begin(), distinct.end(), [](const std::string& w) { return w == "0" || w == "1"; });
  if (!numbers && distinct.size() != 2)
    throw UserError(str(
        "[features] ", path, " has ", distinct.size(), " different labels (",
        config::join(
            {distinct.begin(),
             std::next(distinct.begin(), std::min<std::ptrdiff_t>(5, static_cast<std::ptrdiff_t>(distinct.size())))}),
        distinct.size() > 5 ? ", ..." : "", "); a probe tells two classes apart"));
  const std::string one = numbers ? "1" : *distinct.rbegin();
  std::vector<int> labels;
  for (const std::string& w : words) labels.push_back(w == one);
  return labels;
}

std::string csv_of(const FeatureMatrix& f) {
  std::string text = f.labels.empty() ? "" : "label,";
  for (int64_t c = 0; c < f.columns; ++c) text += str(c ? "," : "", "f", c);
  text += '\n';
  char number[32];
  for (int64_t r = 0; r < f.rows; ++r) {
    if (!f.labels.empty()) text += str(f.labels[static_cast<size_t>(r)], ",");
    for (int64_t c = 0; c < f.columns; ++c) {
      if (c) text += ',';
      const auto end = std::to_chars(number, number + sizeof number, f.values[static_cast<size_t>(r * f.columns + c)]);
      text.append(number, end.ptr);
    }
    text += '\n';
  }
  return text;
}

FeatureMatrix from_csv(const std::string& path) {
  const std::string text = data::read_file(path);
  data::CsvReader reader(text);
  std::vector<std::string> fields;
  FeatureMatrix f;
  if (!reader.next(fields)) throw UserError(str("[probe] ", path, " is empty"));
  const bool labelled = fields[0] == "label";
  f.columns = static_cast<int64_t>(fields.size()) - labelled;
  const size_t width = fields.size();
  while (reader.next(fields)) {
    const auto fail = [&](const std::string& why) {
      throw UserError(str("[probe] ", path, ":", reader.line() + 1, ": ", why));
    };
    if (fields.size() != width) fail(str(fields.size(), " fields, the first line has ", width));
    if (labelled && fields[0] != "0" && fields[0] != "1") fail(str("label '", fields[0], "' is no 0 or 1"));
    if (labelled) f.labels.push_back(fields[0] == "1");
    for (size_t i = labelled; i < width; ++i) {
      const std::optional<double> value = parse_double(fields[i]);
      if (!value) fail(str("'", fields[i], "' is no number"));
      f.values.push_back(static_cast<float>(*value));
    }
    ++f.rows;
  }
  return f;
}

}  // namespace

namespace {

// A label may be a whole number, too.
LabelledTexts read_json_lines(const std::string& path, const std::string& text, const std::string& label,
                              std::vector<std::string>& words) {
  const std::string content = data::read_file(path);
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
  const auto text_column = static_cast<size_t>(data::csv_column(path, text));
  const size_t label_column = label.empty() ? text_column : static_cast<size_t>(data::csv_column(path, label));
  const std::string content = data::read_file(path);
  data::CsvReader reader(std::string_view(content).substr(content.starts_with("\xEF\xBB\xBF") ? 3 : 0));
  std::vector<std::string> fields;
  LabelledTexts out;
  static_cast<void>(reader.next(fields));
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
  if (out.texts.empty()) throw UserError(str("[features] ", path, " holds no text below its first line"));
  return out;
}

}  // namespace

LabelledTexts read_labelled(const std::string& path, const std::string& text, const std::string& label) {
  std::vector<std::string> words;
  const bool json = path.ends_with(".jsonl");
  LabelledTexts out = json ? read_json_lines(path, text, label, words) : read_csv(path, text, label, words);
  if (out.texts.empty()) throw UserError(str("[features] ", path, " holds no text"));
  if (!label.empty()) out.labels = labels_of(words, path);
  return out;
}

void save_features(const FeatureMatrix& f, const std::string& path) {
  if (path.ends_with(".csv")) return write_file_atomically(path, csv_of(f));
  const auto allocator = Allocator::cpu();
  StateDict tensors;
  tensors["features"] = Tensor::from<float>(allocator, {f.rows, f.columns}, f.values);
  if (!f.labels.empty())
    tensors["labels"] =
        Tensor::from<int32_t>(allocator, {f.rows}, std::vector<int32_t>(f.labels.begin(), f.labels.end()));
  save_safetensors(path, tensors, {{"what", f.note}});
}

FeatureMatrix load_features(const std::string& path) {
  if (path.ends_with(".csv")) return from_csv(path);
  const StateDict tensors = load_safetensors(path, Allocator::cpu());
  const auto found = tensors.find("features");
  if (found == tensors.end() || found->second.rank() != 2 || found->second.dtype() != DType::f32)
    throw UserError(str("[probe] ", path, " holds no features (f32, texts x units); `lmx features` writes them"));
  FeatureMatrix f;
  f.rows = found->second.dim(0);
  f.columns = found->second.dim(1);
  const auto values = found->second.values<float>();
  f.values.assign(values.begin(), values.end());
  if (const auto labels = tensors.find("labels"); labels != tensors.end()) {
    const auto ids = labels->second.values<int32_t>();
    f.labels.assign(ids.begin(), ids.end());
    if (static_cast<int64_t>(f.labels.size()) != f.rows)
      throw UserError(str("[probe] ", path, " holds ", f.rows, " texts and ", f.labels.size(), " labels"));
  }
  return f;
}

}  // namespace lmx
