// One pass over text that has no vocabulary yet. Lines are assigned to splits in the same way as by a preparation, so a
// vocabulary size chosen from these counts fits the training split.
#include "app/datasets/survey.h"

#include <algorithm>
#include <functional>

#include "app/pairs/parallel.h"
#include "app/prepare/cache.h"
#include "app/prepare/chunks.h"
#include "app/prepare/prepare.h"
#include "app/prepare/text.h"
#include "app/text/utf8.h"
#include "data/word_table.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using namespace data;

constexpr size_t kChunkBytes = 4 << 20;
constexpr const char* kPlace = "[data] ";

template <class Config>
Config config_of(const Node& data) {
  Node any_size = data;
  any_size.set("vocab_size", Node::scalar("3"));
  return read_config<Config>(any_size, "data");
}

template <class Config>
PrepareSettings splits_of(const Config& config) {
  PrepareSettings settings;
  settings.valid_fraction = config.valid_fraction;
  settings.test_fraction = config.test_fraction;
  settings.split_seed = static_cast<uint64_t>(config.split_seed);
  return settings;
}

std::vector<int64_t> falling_counts(const WordTable& table) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < table.size(); ++i) counts.push_back(table.count(i));
  std::sort(counts.begin(), counts.end(), std::greater<>());
  return counts;
}

void add_all(WordTable& into, const WordTable& from) {
  for (int64_t i = 0; i < from.size(); ++i) into.add(from.word(i), from.count(i));
}

bool is_blank(std::string_view character) {
  if (character.size() == 1) return is_white_space(static_cast<unsigned char>(character[0]));
  return is_white_space(code_points(character)[0]);
}

// The counts of one thread.
struct TextCounter {
  explicit TextCounter(const TextConfig& config)
      : splitter({config.lower_case, config.tokenizer == "whitespace", Unit::word}),
        characters_of({false, false, Unit::character}) {}

  void add(const SourceFile& file, const Chunk& chunk, const Record& record, Split split) {
    found.clear();
    if (characters_of.split(record.text, found) != Tokenizer::kValid) refuse_invalid_utf8(file, chunk, record.raw);
    const auto length = static_cast<int64_t>(found.size()) + 1;
    ++survey.lines;
    survey.characters += length;
    survey.valid_lines += split == Split::valid;
    survey.valid_characters += split == Split::valid ? length : 0;
    for (const std::string_view character : found) {
      survey.blanks += is_blank(character);
      if (split == Split::train) characters.add(character, 1);
    }
    found.clear();
    splitter.split(record.text, found);
    survey.words += static_cast<int64_t>(found.size());
    if (split != Split::train) return;
    survey.train_words += static_cast<int64_t>(found.size());
    for (const std::string_view word : found) words.add(word, 1);
  }

  void add(const TextCounter& other) {
    const TextSurvey& s = other.survey;
    survey.lines += s.lines;
    survey.valid_lines += s.valid_lines;
    survey.characters += s.characters;
    survey.valid_characters += s.valid_characters;
    survey.blanks += s.blanks;
    survey.words += s.words;
    survey.train_words += s.train_words;
    add_all(words, other.words);
    add_all(characters, other.characters);
  }

  Tokenizer splitter, characters_of;
  std::vector<std::string_view> found;
  WordTable words, characters;
  TextSurvey survey;
};

// The counts of one thread over pairs.
struct PairCounter {
  void add(const PairLine& pair, Split split) {
    ++survey.pairs;
    survey.valid_pairs += split == Split::valid;
    const std::array<std::string_view, 2> sides{pair.source, pair.target};
    for (size_t i = 0; i < sides.size(); ++i) {
      survey.bytes[i] += static_cast<int64_t>(sides[i].size()) + 1;
      const std::vector<std::string> parts = split_words(sides[i]);
      const auto length = static_cast<int64_t>(parts.size());
      survey.words[i] += length;
      survey.longest = std::max(survey.longest, length);
      for (const std::string& word : parts) words.add(word, 1);
    }
  }

  void add(const PairCounter& other) {
    survey.pairs += other.survey.pairs;
    survey.valid_pairs += other.survey.valid_pairs;
    survey.longest = std::max(survey.longest, other.survey.longest);
    for (size_t i = 0; i < 2; ++i) {
      survey.bytes[i] += other.survey.bytes[i];
      survey.words[i] += other.survey.words[i];
    }
    add_all(words, other.words);
  }

  WordTable words;
  PairSurvey survey;
};

int64_t distinct_characters(const WordTable& words) {
  WordTable characters;
  for (int64_t i = 0; i < words.size(); ++i)
    for (const char32_t code : code_points(words.word(i))) {
      std::string text;
      append_utf8(text, code);
      characters.add(text, 1);
    }
  return characters.size();
}

template <class Counter>
Counter sum_of(std::vector<Counter>& counters) {
  for (size_t t = 1; t < counters.size(); ++t) counters[0].add(counters[t]);
  return std::move(counters[0]);
}

// Letters are those of ASCII, and all characters beyond it.
bool is_spelled(std::string_view word) {
  std::u32string characters;
  decode_utf8(word, characters);
  const auto is_letter = [](char32_t c) { return c > 127 || (c | 32) - U'a' < 26; };
  return characters.size() > 1 && is_letter(characters[0]) && is_letter(characters[1]);
}

}  // namespace

TextSurvey survey_text(const Node& data) {
  const auto config = config_of<TextConfig>(data);
  const TextSources sources = find_text(config, kPlace);
  const PrepareSettings settings = splits_of(config);
  const int threads = preparing_threads(config.threads);
  ChunkReader reader(sources.files, kChunkBytes, "reading the text:");
  std::vector<TextCounter> counters;
  for (int t = 0; t < threads; ++t) counters.emplace_back(config);
  for_each_chunk(reader, threads, [&](Chunk& chunk, int thread) {
    const SourceFile& file = sources.files[chunk.file];
    for_each_record(file, chunk, [&](const Record& record) {
      const Split split = split_of_line(settings, chunk.split, chunk.first_line + record.line);
      counters[static_cast<size_t>(thread)].add(file, chunk, record, split);
    });
  });
  TextCounter all = sum_of(counters);
  all.survey.files = static_cast<int64_t>(sources.files.size());
  for (const SourceFile& file : sources.files) all.survey.bytes += file.bytes;
  all.survey.word_counts = falling_counts(all.words);
  for (int64_t i = 0; i < all.words.size(); ++i) all.survey.spelled_words += is_spelled(all.words.word(i));
  all.survey.character_counts = falling_counts(all.characters);
  return all.survey;
}

PairSurvey survey_pairs(const Node& data) {
  const auto config = config_of<ParallelConfig>(data);
  const ParallelSources sources = find_parallel(config, kPlace);
  const PrepareSettings settings = splits_of(config);
  const int threads = preparing_threads(config.threads);
  const std::vector<PairFiles>& files = sources.files[0];
  PairReader reader(files, kChunkBytes, "reading the pairs:");
  std::vector<PairCounter> counters(static_cast<size_t>(threads));
  for_each_pair_chunk(reader, threads, [&](PairChunk& chunk, int thread) {
    for_each_pair(files[chunk.file], chunk, [&](const PairLine& pair) {
      counters[static_cast<size_t>(thread)].add(pair, split_of_line(settings, Split::drawn, pair.number));
    });
  });
  PairCounter all = sum_of(counters);
  all.survey.types = all.words.size();
  all.survey.characters = distinct_characters(all.words);
  return all.survey;
}

}  // namespace lmx
