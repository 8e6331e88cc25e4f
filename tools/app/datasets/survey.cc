#include "app/datasets/survey.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "app/datasets/open.h"
#include "app/pairs/parallel.h"
#include "app/prepare/cache.h"
#include "app/prepare/chunks.h"
#include "app/prepare/prepare.h"
#include "app/prepare/text.h"
#include "app/text/utf8.h"
#include "base/files.h"
#include "base/output_file.h"
#include "config/messages.h"
#include "data/data_config.h"
#include "data/word_table.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr size_t kParts = 4, kPart = 1 << 20;
constexpr double kSubword = 4;  // bytes

double bytes_of(const std::vector<SourceFile>& files) {
  double bytes = 0;
  for (const SourceFile& file : files) bytes += static_cast<double>(file.bytes);
  return bytes;
}

// The first part of a file; "" if it is empty.
std::string first_part(const SourceFile& file) {
  const std::vector<SourceFile> files{file};  // the reader refers to it
  ChunkReader reader(files, kPart, "");
  Chunk chunk;
  return reader.next(chunk) ? std::move(chunk.text) : "";
}

// Copies the first part of up to kParts of the files to `folder`, under names with their endings.
std::vector<SourceFile> copy_parts(const std::vector<SourceFile>& files, const std::string& folder) {
  std::vector<SourceFile> copies;
  const size_t parts = std::min(kParts, files.size());
  for (size_t i = 0; i < parts; ++i) {
    SourceFile copy = files[i * files.size() / parts];
    const std::string text = first_part(copy);
    copy.path = str(folder, "/", i, std::filesystem::path(copy.path).extension().string());
    copy.bytes = static_cast<int64_t>(text.size());
    write_file(copy.path, text);
    copies.push_back(std::move(copy));
  }
  return copies;
}

// `data` with these files in place of its corpus or its own.
Node with_files(const Node& data, const TextSources& sources, const std::vector<SourceFile>& files) {
  Node changed = data;
  std::vector<Node> paths;
  for (const SourceFile& file : files) paths.push_back(Node::string(file.path));
  for (const char* key : {"corpus", "valid_files", "test_files"}) changed.erase(key);
  changed.set("files", Node::list(paths));
  if (sources.corpus && !sources.corpus->field.empty()) changed.set("field", Node::string(sources.corpus->field));
  const Node* tokens = data.find("tokens");
  if (!tokens || tokens->text == "words")
    changed.set("tokenizer", Node::string(sources.whitespace_only ? "whitespace" : "rules"));
  if (!tokens || tokens->text != "bytes") changed.set("vocab_size", Node::scalar("3"));
  return changed;
}

std::optional<int64_t> tokens_of_text(const Node& node) {
  const TextConfig text = text_config(node);
  const TextSources sources = find_text(text, node);
  std::vector<SourceFile> files = sources.files;
  std::erase_if(files, [](const SourceFile& f) { return f.split == Split::valid || f.split == Split::test; });
  const auto packed = [](const SourceFile& f) { return is_compressed(f.path); };
  if (files.empty() || std::any_of(files.begin(), files.end(), packed)) return {};
  if (text.tokens == "subwords") return std::llround(bytes_of(files) / kSubword);
  const TemporaryDirectory folder;
  const std::vector<SourceFile> parts = copy_parts(files, folder.path());
  const DataCheck sample = check_dataset(with_files(node, sources, parts));
  if (!sample.train_tokens) return {};
  return std::llround(static_cast<double>(*sample.train_tokens) * bytes_of(files) / bytes_of(parts));
}

// The main part alone: an epoch reads the pairs of the others in proportion.
std::optional<int64_t> tokens_of_pairs(const Node& node) {
  const ParallelConfig config = parallel_config(node);
  const ParallelSources sources = find_parallel(config, node);
  double bytes = 0, lines = 0, sampled = 0, all_ratios = 0;
  for (const PairFiles& pair : sources.files[0]) {
    const SourceFile& file = pair.tsv() ? pair.source : pair.target;
    if (is_compressed(file.path)) return {};
    bytes += static_cast<double>(file.bytes) / (pair.tsv() ? 2 : 1);
    const std::string text = first_part(file);
    sampled += static_cast<double>(text.size()) / (pair.tsv() ? 2 : 1);
    lines += static_cast<double>(std::count(text.begin(), text.end(), '\n'));
  }
  if (lines == 0) return {};
  double pairs = bytes * lines / sampled;
  if (!sources.range.all()) pairs = std::min(pairs, static_cast<double>(sources.range.last - sources.range.first + 1));
  for (const MixPart& part : config.mix.parts) all_ratios += part.ratio;
  if (!config.mix.parts.empty()) pairs *= all_ratios / config.mix.parts[config.mix.epoch_of].ratio;
  return std::llround(pairs * (sampled / lines / kSubword + 1));  // and </s>
}

}  // namespace

std::optional<int64_t> sampled_train_tokens(const Node& data) {
  try {
    if (kind_of(data) == Kind::text) return tokens_of_text(data);
    if (kind_of(data) == Kind::parallel) return tokens_of_pairs(data);
  } catch (const UserError&) {  // the check of the data reports it
  }
  return {};
}

// One pass over text that has no vocabulary yet. Lines are assigned to splits in the same way as by a preparation, so a
// vocabulary size chosen from these counts fits the training split.

namespace {

constexpr size_t kChunkBytes = 4 << 20;
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
      : bytes(config.tokens == "bytes"),
        splitter({config.lower_case, config.tokenizer == "whitespace", Unit::word}),
        characters_of({false, false, Unit::character}) {}

  void add(const SourceFile& file, const Chunk& chunk, const TextRecord& record, Split split) {
    found.clear();
    if (!bytes && characters_of.split(record.text, found) != Tokenizer::kValid)
      refuse_invalid_utf8(file, chunk, record.raw);
    const auto length = static_cast<int64_t>(bytes ? record.text.size() : found.size()) + 1;
    ++survey.lines;
    survey.characters += length;
    survey.valid_lines += split == Split::valid;
    survey.valid_characters += split == Split::valid ? length : 0;
    if (bytes) return;
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

  bool bytes;
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
  const TextSources sources = find_text(config, data);
  const PrepareSettings settings = splits_of(config);
  const int threads = preparing_threads(config.threads);
  ChunkReader reader(sources.files, kChunkBytes, "reading the text:");
  std::vector<TextCounter> counters;
  for (int t = 0; t < threads; ++t) counters.emplace_back(config);
  for_each_chunk(reader, threads, [&](Chunk& chunk, int thread) {
    const SourceFile& file = sources.files[chunk.file];
    for_each_record(file, chunk, [&](const TextRecord& record) {
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
  const ParallelSources sources = find_parallel(config, data);
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

}  // namespace lmx::app
