#include "app/probe/probe_texts.h"

#include <algorithm>
#include <set>

#include "app/corpora/corpora.h"
#include "app/corpora/formats.h"
#include "app/corpora/sources.h"
#include "app/probe/transfer.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx_cli {

using namespace lmx;

ProbeTexts divide_texts(const LabelledTexts& all, int64_t seed, bool test) {
  ProbeTexts out;
  out.train.classes = all.classes;
  const auto n = static_cast<uint64_t>(all.texts.size());
  const RandomKey key = RandomKey(static_cast<uint64_t>(seed)).fold("probe split");
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t from = permute(key, i, n);
    LabelledTexts& part = i < n / 10 ? (test ? out.test : out.valid) : test && i < n / 5 ? out.valid : out.train;
    part.texts.push_back(all.texts[from]);
    part.labels.push_back(all.labels[from]);
    part.places.push_back(all.places[from]);
  }
  return out;
}

ProbeTexts texts_of_corpus(const std::string& name, const TextColumns& columns, int64_t seed) {
  const Corpus& corpus = find_corpus(name);
  if (corpus.format != "csv")
    throw UserError(str("[probe] corpus '", corpus.name, "' has no labels; sst2 and movie_reviews have"));
  const CorpusPlace place = locate(corpus);
  if (!place.problem.empty()) throw UserError("[data] " + place.problem);
  std::vector<std::string> classes = columns.classes;  // or the classes of the first file
  const auto read = [&](const std::vector<std::string>& files) {
    LabelledTexts texts;
    for (const std::string& file : files) {
      const LabelledTexts more = read_labelled(place.directory + "/" + file, columns.text, columns.label, classes);
      classes = more.classes;
      texts.texts.insert(texts.texts.end(), more.texts.begin(), more.texts.end());
      texts.labels.insert(texts.labels.end(), more.labels.begin(), more.labels.end());
      texts.places.insert(texts.places.end(), more.places.begin(), more.places.end());
    }
    return texts;
  };
  if (corpus.valid.empty()) return divide_texts(read(corpus.train), seed);
  return {read(corpus.train), read(corpus.valid), read(corpus.test)};
}

ProbeFeatures features_of_texts(const std::string& run, const ProbeTexts& texts, const FeatureOptions& options) {
  const auto make = [&](const LabelledTexts& t) {
    return t.texts.empty() ? FeatureMatrix{} : text_features(run, t, options);
  };
  return {make(texts.train), make(texts.valid), make(texts.test)};
}

ProbeResult probe_bytes(const ProbeTexts& texts, const ProbeOptions& options) {
  ProbeOptions scaled = options;
  scaled.standardise = true;
  return probe(byte_counts(texts.train), byte_counts(texts.valid), byte_counts(texts.test), scaled);
}

}  // namespace lmx_cli

// Labelled texts from CSV and JSON lines.

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
