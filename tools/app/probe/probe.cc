// lmx probe: texts with labels, linear classifiers over their features, and the most informative single unit.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "app/probe/transfer.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/random.h"

namespace lmx::app {

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

// Labelled texts from CSV and JSON lines.

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
    out.texts.push_back(json_field(line, text, out.places.back()));
    if (!label.empty()) words.push_back(json_field(line, label, out.places.back(), true));
  }
  return out;
}

LabelledTexts read_csv(const std::string& path, const std::string& text, const std::string& label,
                       std::vector<std::string>& words) {
  const std::string content = read_file(path, Content::text);
  CsvReader reader(content);
  std::vector<std::string> fields;
  LabelledTexts out;
  static_cast<void>(reader.next(fields));
  const auto text_column = static_cast<size_t>(csv_column(fields, path, text));
  const size_t label_column = label.empty() ? text_column : static_cast<size_t>(csv_column(fields, path, label));
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
  const bool json = format_of(path) == Format::jsonl;
  LabelledTexts out = json ? read_json_lines(path, text, label, words) : read_csv(path, text, label, words);
  if (out.texts.empty())
    throw UserError(str("[features] ", path, " holds no text", json ? "" : " below its first line"));
  if (label.empty()) return out;
  out.classes = classes.empty() ? classes_of(words, path) : classes;
  set_labels(out, words);
  return out;
}

// lmx probe: linear classifiers over features, and the most informative single unit.

namespace {

void check_classes(const FeatureMatrix& f, const std::string& what) {
  if (f.rows == 0) throw UserError(str("[probe] the ", what, " features hold no text"));
  if (f.labels.empty()) throw UserError(str("[probe] the ", what, " features have no labels"));
  if (f.columns == 0) throw UserError(str("[probe] the ", what, " features have no units"));
  const auto ones = std::count(f.labels.begin(), f.labels.end(), 1);
  if (ones == 0 || ones == f.rows)
    throw UserError(str("[probe] all ", f.rows, " ", what, " texts have the label ", ones ? 1 : 0,
                        "; a probe separates two classes"));
}

void check(const FeatureMatrix& train, const FeatureMatrix& valid, const FeatureMatrix& test) {
  check_classes(train, "training");
  check_classes(valid, "validation");
  if (test.rows > 0 && test.labels.empty()) throw UserError("[probe] the test features have no labels");
  for (const FeatureMatrix* f : {&valid, &test})
    if (f->rows > 0 && f->columns != train.columns)
      throw UserError(str("[probe] the training features have ", train.columns, " columns, the ",
                          f == &valid ? "validation" : "test", " features ", f->columns,
                          "; they must come from one model and state"));
}

// The scales of standardised columns: value = mean + deviation * standardised value.
struct Scales {
  std::vector<double> mean, deviation;
};

// Standardises columns to mean 0 and variance 1 over the training texts; a constant column becomes 0.
Scales standardise(FeatureMatrix& train, FeatureMatrix& valid, FeatureMatrix& test) {
  const auto width = static_cast<size_t>(train.columns);
  std::vector<double> mean(width), deviation(width);
  for (size_t i = 0; i < train.values.size(); ++i) mean[i % width] += static_cast<double>(train.values[i]);
  for (double& m : mean) m /= static_cast<double>(train.rows);
  for (size_t i = 0; i < train.values.size(); ++i) {
    const double d = static_cast<double>(train.values[i]) - mean[i % width];
    deviation[i % width] += d * d;
  }
  for (double& d : deviation) d = std::sqrt(d / static_cast<double>(train.rows));
  const auto standardised = [&](double value, size_t column) {
    return deviation[column] > 0 ? static_cast<float>((value - mean[column]) / deviation[column]) : 0.0F;
  };
  for (FeatureMatrix* f : {&train, &valid, &test})
    for (size_t i = 0; i < f->values.size(); ++i)
      f->values[i] = standardised(static_cast<double>(f->values[i]), i % width);
  return {std::move(mean), std::move(deviation)};
}

LinearModel fit(const LogisticProblem& problem, const std::string& penalty, double c, const LinearModel& start) {
  return penalty == "l1" ? problem.fit_l1(c, start) : problem.fit_l2(c, start);
}

ProbeFit fit_path(const LogisticProblem& problem, const FeatureMatrix* sets[3], const std::string& penalty,
                  const std::vector<double>& cs) {
  ProbeFit best;
  LinearModel model;
  for (const double c : cs) {  // each fit starts from the previous one
    model = fit(problem, penalty, c, model);
    if (!model.converged)
      log_warn(str("[probe] ", penalty, " with C ", c, " did not converge in ", model.iterations, " iterations"));
    const double valid = accuracy(model, *sets[1]);
    if (best.penalty.empty() || valid > best.valid) best = {penalty, c, 0, valid, 0, 0, model};
  }
  best.train = accuracy(best.model, *sets[0]);
  best.test = sets[2]->rows > 0 ? accuracy(best.model, *sets[2]) : 0;
  best.used = static_cast<int64_t>(
      std::count_if(best.model.weights.begin(), best.model.weights.end(), [](double w) { return w != 0; }));
  return best;
}

FeatureMatrix column_of(const FeatureMatrix& f, int64_t unit) {
  FeatureMatrix one;
  one.rows = f.rows;
  one.columns = 1;
  one.labels = f.labels;
  for (int64_t r = 0; r < f.rows; ++r) one.values.push_back(f.values[static_cast<size_t>(r * f.columns + unit)]);
  return one;
}

StrongestUnit strongest_of(const ProbeFit& fitted, const FeatureMatrix* sets[3]) {
  const std::vector<double>& w = fitted.model.weights;
  const auto found = std::max_element(w.begin(), w.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  StrongestUnit s;
  s.unit = found - w.begin();
  s.weight = *found;
  const FeatureMatrix train = column_of(*sets[0], s.unit), valid = column_of(*sets[1], s.unit);
  const LinearModel alone = fit(LogisticProblem(train), fitted.penalty, fitted.c, {});
  s.threshold = alone.weights[0] != 0 ? -alone.bias / alone.weights[0] : 0;
  s.train = accuracy(alone, train);
  s.valid = accuracy(alone, valid);
  if (sets[2]->rows > 0) s.test = accuracy(alone, column_of(*sets[2], s.unit));
  return s;
}

}  // namespace

void check_probe(const ProbeOptions& o) {
  if (o.penalties.empty()) throw UserError("[probe] no penalty to fit with; there are l1 and l2");
  for (const std::string& p : o.penalties)
    if (p != "l1" && p != "l2")
      throw UserError(
          str("[probe] there is no penalty '", p, "'", did_you_mean(p, {"l1", "l2"}), "; there are l1 and l2"));
  for (const double c : o.c)
    if (!(c > 0) || std::isinf(c)) throw UserError(str("[probe] C must be a number above 0, got ", c));
}

LinearModel fit_logistic(const FeatureMatrix& features, const std::string& penalty, double c) {
  return fit(LogisticProblem(features), penalty, c, {});
}

double accuracy(const LinearModel& model, const FeatureMatrix& f) {
  int64_t right = 0;
  for (int64_t r = 0; r < f.rows; ++r) {
    double z = model.bias;
    for (int64_t c = 0; c < f.columns; ++c)
      z +=
          model.weights[static_cast<size_t>(c)] * static_cast<double>(f.values[static_cast<size_t>(r * f.columns + c)]);
    right += (z > 0) == (f.labels[static_cast<size_t>(r)] == 1);
  }
  return static_cast<double>(right) / static_cast<double>(f.rows);
}

ProbeResult probe(const FeatureMatrix& train, const FeatureMatrix& valid, const FeatureMatrix& test,
                  const ProbeOptions& options) {
  check_probe(options);
  check(train, valid, test);
  FeatureMatrix scaled[3];
  const FeatureMatrix* sets[3] = {&train, &valid, &test};
  std::optional<Scales> scales;
  if (options.standardise) {
    for (size_t i = 0; i < 3; ++i) scaled[i] = *sets[i];
    scales = standardise(scaled[0], scaled[1], scaled[2]);
    for (size_t i = 0; i < 3; ++i) sets[i] = &scaled[i];
  }
  std::vector<double> cs = options.c;
  for (int e = -8; options.c.empty() && e <= 0; ++e) cs.push_back(std::ldexp(1.0, e));
  std::sort(cs.begin(), cs.end());
  const LogisticProblem problem(*sets[0]);
  ProbeResult result;
  for (const std::string& penalty : options.penalties) result.fits.push_back(fit_path(problem, sets, penalty, cs));
  const auto l1 =
      std::find_if(result.fits.begin(), result.fits.end(), [](const ProbeFit& f) { return f.penalty == "l1"; });
  StrongestUnit& s = result.strongest = strongest_of(l1 != result.fits.end() ? *l1 : result.fits.front(), sets);
  const auto unit = static_cast<size_t>(s.unit);
  if (scales) s.threshold = scales->mean[unit] + scales->deviation[unit] * s.threshold;
  return result;
}

}  // namespace lmx::app
