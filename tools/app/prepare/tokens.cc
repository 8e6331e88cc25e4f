#include "app/prepare/tokens.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <numeric>
#include <unordered_set>

#include "app/prepare/token_file.h"
#include "app/text/subword_tokenizer.h"
#include "base/files.h"
#include "config/messages.h"
#include "data/dataset.h"
#include "data/tokenizer_file.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

std::string hash_of(const TokenFiles& files) {
  std::string text;
  for (size_t s = 0; s < files.size(); ++s)
    for (const TokenArray::Part& part : files[s]) text += str(kSplitNames[s], " ", token_hash(part), "\n");
  return hash_text(text);
}

// Names for ids whose tokenizer is unknown.
Vocabulary numbered(int64_t size) {
  std::vector<Vocabulary::Entry> entries;
  for (int64_t id = 0; id < size; ++id) entries.push_back({str("<", id, ">"), 1});
  return Vocabulary(std::move(entries), {-1, -1});
}

void set_tokenizer(Dataset& dataset, const TokensConfig& config) {
  if (config.tokenizer_file.empty()) {
    dataset.vocabulary = numbered(config.vocab_size);
    return;
  }
  const auto tokenizer = make_tokenizer({read_file(config.tokenizer_file), config.tokenizer_file});
  const std::vector<int64_t> counts(static_cast<size_t>(tokenizer->size()), 1);
  dataset.vocabulary = tokenizer->vocabulary(counts);
  dataset.token_bytes = tokenizer->token_bytes();
  dataset.codecs.target = tokenizer;
}

}  // namespace

TokenFiles find_token_files(const TokensConfig& config, const Node& data) {
  const config::Place place{data, "data"};
  if (config.train.empty() || config.valid.empty())
    throw UserError(str(place(), "needs `train` and `valid`, files or globs of ids"));
  check_entries(config.tokenizer_file, config.vocab_size, place("vocab_size"));
  const std::vector<std::string>* patterns[kSplits] = {&config.train, &config.valid, &config.test};
  TokenFiles files;
  for (size_t s = 0; s < kSplits; ++s)
    for (const SourceFile& file : find_sources(*patterns[s], static_cast<Split>(s)))
      files[s].push_back(token_part(file.path, file.bytes, config.format));
  return files;
}

Dataset open_token_files(const TokensConfig& config, const Node& data) {
  const TokenFiles files = find_token_files(config, data);
  for (const auto& split : files)
    for (const TokenArray::Part& part : split) check_ids(part, config.vocab_size, false);
  Dataset dataset;
  dataset.train = TokenArray::map_parts(files[0]);
  dataset.valid = TokenArray::map_parts(files[1]);
  dataset.test = TokenArray::map_parts(files[2]);
  dataset.unit = "subword";
  dataset.hash = hash_of(files);
  set_tokenizer(dataset, config);
  dataset.separator = dataset.vocabulary.eos();
  const size_t count = files[0].size() + files[1].size() + files[2].size();
  dataset.source_note = str(count, " files of ids, ", config.format);
  dataset.report = str("vocabulary: ", config.vocab_size, " entries",
                       config.tokenizer_file.empty() ? "; their tokenizer is not known" : "", "\n");
  return dataset;
}

void check_all_ids(const TokensConfig& config, const Node& data) {
  for (const auto& split : find_token_files(config, data))
    for (const TokenArray::Part& part : split) check_ids(part, config.vocab_size, true);
}

namespace {

std::vector<double> running_sum(const std::vector<double>& values) {
  std::vector<double> sums(values.size());
  std::partial_sum(values.begin(), values.end(), sums.begin());
  return sums;
}

size_t pick(const std::vector<double>& cumulative, double u) {
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), u * cumulative.back());
  return std::min(static_cast<size_t>(at - cumulative.begin()), cumulative.size() - 1);
}

}  // namespace

MarkovSource::MarkovSource(const SyntheticConfig& config)
    : config_(config),
      key_(RandomKey(static_cast<uint64_t>(config.seed)).fold("synthetic")),
      words_(static_cast<int32_t>(config.vocab_size - 2)),
      end_(1.0 / static_cast<double>(config.line_length)) {
  for (int32_t rank = 1; rank <= words_; ++rank) zipf_.push_back(std::pow(rank, -config.zipf_exponent));
  const double total = std::accumulate(zipf_.begin(), zipf_.end(), 0.0);
  for (double& z : zipf_) z /= total;
  cumulative_ = running_sum(zipf_);
  for (uint64_t c = 0; c <= static_cast<uint64_t>(config.classes); ++c) {
    const RandomKey key = key_.fold("class").fold(c);
    // The largest keys u^(1/z) are a sample by z without repetition (Efraimidis and Spirakis 2006); here in logarithms.
    std::vector<std::pair<double, int32_t>> order;
    for (int32_t w = 0; w < words_; ++w) {
      order.emplace_back(std::log1p(-key.uniform(static_cast<uint64_t>(w))) / zipf_[static_cast<size_t>(w)], w + 1);
    }
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(config.branching);
    std::partial_sort(order.begin(), middle, order.end(), std::greater<>());
    Class cls;
    for (auto it = order.begin(); it != middle; ++it) cls.next.push_back(it->second);
    std::sort(cls.next.begin(), cls.next.end());
    for (const int32_t w : cls.next) cls.probability.push_back(zipf_[static_cast<size_t>(w - 1)]);
    const double sum = std::accumulate(cls.probability.begin(), cls.probability.end(), 0.0);
    for (double& p : cls.probability) p /= sum;
    cls.cumulative = running_sum(cls.probability);
    classes_.push_back(std::move(cls));
  }
  class_of_.push_back(classes_.size() - 1);
  // Assigns classes in a random order, so that every class has frequent and rare words.
  const RandomKey key = key_.fold("classes");
  for (uint64_t w = 0; w < static_cast<uint64_t>(words_); ++w)
    class_of_.push_back(permute(key, w, static_cast<uint64_t>(words_)) % (classes_.size() - 1));
}

double MarkovSource::probability(int32_t before, int32_t next) const {
  const double end = before == 0 ? 0 : end_;
  if (next == 0) return end;
  const Class& cls = classes_[class_of_[static_cast<size_t>(before)]];
  const auto at = std::lower_bound(cls.next.begin(), cls.next.end(), next);
  const bool preferred = at != cls.next.end() && *at == next;
  const double s = preferred ? cls.probability[static_cast<size_t>(at - cls.next.begin())] : 0;
  return (1 - end) * (config_.noise * zipf_[static_cast<size_t>(next - 1)] + (1 - config_.noise) * s);
}

std::vector<int32_t> MarkovSource::draw(RandomKey key, int64_t count) const {
  std::vector<int32_t> text(static_cast<size_t>(count));
  const RandomKey choice = key.fold("choice"), word = key.fold("word");
  int32_t before = 0;
  for (size_t t = 0; t < text.size(); ++t) {
    const double end = before == 0 ? 0 : end_;
    const double u = choice.uniform(t), v = word.uniform(t);
    if (u < end)
      before = 0;
    else if (u < end + (1 - end) * config_.noise)
      before = static_cast<int32_t>(pick(cumulative_, v)) + 1;
    else {
      const Class& cls = classes_[class_of_[static_cast<size_t>(before)]];
      before = cls.next[pick(cls.cumulative, v)];
    }
    text[t] = before;
  }
  return text;
}

double MarkovSource::perplexity(std::span<const int32_t> text) const {
  double sum = 0;
  for (size_t t = 1; t < text.size(); ++t) sum -= std::log(probability(text[t - 1], text[t]));
  return std::exp(sum / static_cast<double>(text.size() - 1));
}

std::vector<double> MarkovSource::stationary() const {
  const auto n = static_cast<size_t>(states());
  std::vector<double> now(n, 1.0 / static_cast<double>(n)), next(n);
  for (int turn = 0; turn < 10'000; ++turn) {
    std::vector<double> mass(classes_.size());  // probability mass of words that follow a state of each class
    double words = 0;
    for (size_t s = 0; s < n; ++s) {
      const double share = now[s] * (s == 0 ? 1 : 1 - end_);
      mass[class_of_[s]] += share;
      words += share;
    }
    next[0] = 1 - words;
    for (size_t s = 1; s < n; ++s) next[s] = words * config_.noise * zipf_[s - 1];
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t i = 0; i < classes_[c].next.size(); ++i) {
        next[static_cast<size_t>(classes_[c].next[i])] += mass[c] * (1 - config_.noise) * classes_[c].probability[i];
      }
    }
    double change = 0;
    for (size_t s = 0; s < n; ++s) change += std::abs(next[s] - now[s]);
    // Takes half a step each time, so that periodic chains (possible with a single branch) converge, too.
    for (size_t s = 0; s < n; ++s) now[s] = 0.5 * (now[s] + next[s]);
    if (change < 1e-12) break;
  }
  return now;
}

double MarkovSource::entropy_rate() const {
  // All states of a class have the same distribution over words; only </s> differs.
  const std::vector<double> share = stationary();
  std::vector<double> of_class(classes_.size(), -1);
  double entropy = 0;
  for (int32_t s = 0; s < states(); ++s) {
    double& h = of_class[class_of_[static_cast<size_t>(s)]];
    if (h < 0) {
      h = 0;
      for (int32_t next = 0; next < states(); ++next) {
        const double p = probability(s, next);
        if (p > 0) h -= p * std::log(p);
      }
    }
    entropy += share[static_cast<size_t>(s)] * h;
  }
  return entropy;
}

std::vector<std::string> MarkovSource::make_words() const {
  constexpr const char* kOnsets[] = {"b", "d", "f", "g", "k",  "l",  "m",  "n",  "p",  "r",
                                     "s", "t", "v", "z", "br", "dr", "gr", "st", "tr", "sh"};
  constexpr const char* kVowels[] = {"a", "e", "i", "o", "u", "ai", "ea", "ou"};
  constexpr const char* kCodas[] = {"", "", "", "n", "r", "s", "l", "m", "nd", "st"};
  std::vector<std::string> words{""};
  std::unordered_set<std::string> seen;
  const RandomKey key = key_.fold("letters");
  uint64_t draw = 0;
  for (int32_t w = 1; w <= words_; ++w) {
    std::string word;
    // If a word exists already, one more syllable is added. So the loop ends, and frequent words stay short.
    for (int syllables = w <= 100 ? 1 : 2;; ++syllables) {
      word.clear();
      for (int i = 0; i < syllables; ++i) {
        word += kOnsets[key.below(draw++, std::size(kOnsets))];
        word += kVowels[key.below(draw++, std::size(kVowels))];
        word += i + 1 == syllables ? kCodas[key.below(draw++, std::size(kCodas))] : "";
      }
      if (seen.insert(word).second) break;
    }
    words.push_back(std::move(word));
  }
  return words;
}

Dataset make_synthetic(const SyntheticConfig& config) {
  const MarkovSource source(config);
  const RandomKey key = RandomKey(static_cast<uint64_t>(config.seed)).fold("synthetic text");
  std::vector<int32_t> splits[3] = {source.draw(key.fold("train"), config.train_tokens),
                                    source.draw(key.fold("valid"), config.valid_tokens),
                                    source.draw(key.fold("test"), config.test_tokens)};
  Dataset dataset;
  dataset.true_perplexity = source.perplexity(splits[1]);

  const std::vector<std::string> words = source.make_words();
  std::vector<int64_t> counts(words.size());
  for (const int32_t state : splits[0]) ++counts[static_cast<size_t>(state)];
  std::vector<int32_t> order(words.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return counts[i] != counts[j] ? counts[i] > counts[j] : words[i] < words[j];
  });
  std::vector<Vocabulary::Entry> entries{{"<unk>", 0}, {"</s>", counts[0]}};
  std::vector<int32_t> id(words.size(), Vocabulary::kEos);
  for (const int32_t state : order) {
    id[static_cast<size_t>(state)] = static_cast<int32_t>(entries.size());
    entries.push_back({words[static_cast<size_t>(state)], counts[static_cast<size_t>(state)]});
    dataset.types += counts[static_cast<size_t>(state)] > 0;
  }
  for (auto& split : splits) {
    for (int32_t& token : split) token = id[static_cast<size_t>(token)];
  }
  dataset.train = TokenArray::of(std::move(splits[0]));
  dataset.valid = TokenArray::of(std::move(splits[1]));
  dataset.test = TokenArray::of(std::move(splits[2]));
  dataset.vocabulary = Vocabulary(std::move(entries));
  dataset.separator = dataset.vocabulary.eos();
  dataset.hash = hash_text(str("synthetic 1\n", to_json(write_config(config))));
  const double entropy = source.entropy_rate();
  std::ostringstream note;
  note << std::setprecision(4) << "synthetic text of known entropy: perplexity of its source "
       << *dataset.true_perplexity << " on the validation split, " << std::exp(entropy) << " (" << entropy
       << " nats a token) on text without end";
  dataset.source_note = note.str();
  dataset.report =
      str("vocabulary: ", config.vocab_size, " entries with <unk> and </s>; ", dataset.types, " types occur in ",
          config.train_tokens,
          " training tokens\nperplexity of the source on the validation split: ", *dataset.true_perplexity, "\n");
  return dataset;
}

}  // namespace lmx::app
