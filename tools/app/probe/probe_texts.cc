#include "app/probe/probe_texts.h"

#include "app/corpora/corpora.h"
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
