#include "app/prepare/prepare.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <sstream>

#include "app/prepare/chunks.h"
#include "app/text/cleaner.h"
#include "app/text/utf8.h"
#include "data/shard.h"
#include "data/word_table.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::data {
namespace {

constexpr std::string_view kUnkWord = "<unk>", kEosWord = "</s>";

// The objects that each thread needs separately.
struct Worker {
  explicit Worker(const PrepareSettings& s) : tokenizer(s.rules), cleaner(s.puri) {}
  Tokenizer tokenizer;
  Cleaner cleaner;
  std::vector<std::string_view> words;
  int64_t invalid = 0;  // strings from which `cleaner` removed bytes
};

std::vector<Worker> make_workers(const PrepareSettings& settings) {
  std::vector<Worker> workers;
  for (int t = 0; t < settings.threads; ++t) workers.emplace_back(settings);
  return workers;
}

struct Text {
  const std::vector<SourceFile>& files;
  const PrepareSettings& settings;
  const std::vector<bool>& repeated;  // true: leave the line out; lines beyond the end of the vector are kept
};

// A string and its tokens. For bytes, `words` is empty.
struct Sentence {
  Split split;
  std::string_view text;
  const std::vector<std::string_view>& words;
  int64_t tokens;
  int64_t line;  // over all files
  bool used;     // false: in the training split, but outside the fraction of it that is trained on
};

// Returns whether training uses the line. The lines of a smaller fraction are a subset of those of a larger one.
bool trains(const PrepareSettings& settings, int64_t line) {
  return settings.train_fraction >= 1 ||
         RandomKey(settings.split_seed).fold("train").uniform(static_cast<uint64_t>(line)) < settings.train_fraction;
}

// Calls visit(Sentence) for each line of the chunk that contains a word, or for each string of characters or bytes.
// Lines of the training split are either all visited, or only if they are used.
enum class Lines : uint8_t { used, all };
template <class Visit>
void for_each_sentence(const Text& text, const Chunk& chunk, Worker& worker, Lines wanted, Visit&& visit) {
  const PrepareSettings& settings = text.settings;
  const SourceFile& file = text.files[chunk.file];
  for_each_record(file, chunk, [&](const Record& record) {
    const int64_t line = chunk.first_line + record.line;
    const Split split = split_of_line(settings, chunk.split, line);
    const bool used = split != Split::train || trains(settings, line);
    if (!used && wanted == Lines::used) return;
    if (static_cast<size_t>(line) < text.repeated.size() && text.repeated[static_cast<size_t>(line)]) return;
    const std::string_view cleaned = worker.cleaner.clean(record.text);
    worker.invalid += settings.puri && find_invalid_utf8(record.text) != kValidUtf8;
    if (cleaned.empty() && (settings.puri || file.format != Format::lines)) return;
    worker.words.clear();
    if (settings.rules.unit != Unit::byte && worker.tokenizer.split(cleaned, worker.words) != Tokenizer::kValid)
      refuse_invalid_utf8(file, chunk, record.raw);
    if (settings.rules.unit == Unit::word && worker.words.empty()) return;
    const size_t tokens = settings.rules.unit == Unit::byte ? cleaned.size() : worker.words.size();
    visit(Sentence{split, cleaned, worker.words, static_cast<int64_t>(tokens), line, used});
  });
}

// Marks the lines whose strings equal an earlier one.
std::vector<bool> find_repeated(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                                const std::string& directory) {
  if (!settings.drop_repeated) return {};
  ChunkReader reader(files, settings.chunk_bytes, "looking for repeated strings:");
  DuplicateFinder finder(directory);
  std::vector<Worker> workers = make_workers(settings);
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int thread) {
    for_each_sentence({files, settings, {}}, chunk, workers[static_cast<size_t>(thread)], Lines::all,
                      [&](const Sentence& s) { finder.add(s.text, s.line); });
  });
  return finder.finish();
}

struct Counts {
  WordTable words;                   // of the whole training split, also of lines outside `train_fraction`
  int64_t lines = 0;                 // of the whole training split
  std::array<int64_t, 256> bytes{};  // of the whole training split, if the unit is byte
  std::array<SplitCounts, kSplits> splits;
  int64_t invalid = 0;
};

void count_sentence(const Sentence& s, const PrepareSettings& settings, Counts& counts) {
  if (s.used) {
    SplitCounts& totals = counts.splits[static_cast<size_t>(s.split)];
    ++totals.lines;
    totals.words += s.tokens;
    totals.bytes += static_cast<int64_t>(s.text.size()) + settings.end_of_line;
  }
  if (s.split != Split::train) return;
  ++counts.lines;
  for (const std::string_view word : s.words) counts.words.add(word, 1);
  if (settings.rules.unit != Unit::byte) return;
  for (const char c : s.text) ++counts.bytes[static_cast<unsigned char>(c)];
  counts.bytes['\n'] += settings.end_of_line;
}

Counts count_words(const Text& text) {
  const PrepareSettings& settings = text.settings;
  ChunkReader reader(text.files, settings.chunk_bytes, str("counting ", name_of(settings.rules.unit), "s:"));
  std::vector<Counts> counts(static_cast<size_t>(settings.threads));
  std::vector<Worker> workers = make_workers(settings);
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int thread) {
    Counts& mine = counts[static_cast<size_t>(thread)];
    for_each_sentence(text, chunk, workers[static_cast<size_t>(thread)], Lines::all,
                      [&](const Sentence& s) { count_sentence(s, settings, mine); });
  });
  Counts all = std::move(counts[0]);
  for (size_t t = 1; t < counts.size(); ++t) {
    for (int64_t i = 0; i < counts[t].words.size(); ++i)
      all.words.add(counts[t].words.word(i), counts[t].words.count(i));
    all.lines += counts[t].lines;
    for (size_t b = 0; b < all.bytes.size(); ++b) all.bytes[b] += counts[t].bytes[b];
    for (size_t s = 0; s < kSplits; ++s) {
      all.splits[s].lines += counts[t].splits[s].lines;
      all.splits[s].words += counts[t].splits[s].words;
      all.splits[s].bytes += counts[t].splits[s].bytes;
    }
    counts[t] = {};
  }
  for (const Worker& worker : workers) all.invalid += worker.invalid;
  return all;
}

void check_splits(const Counts& counts, const PrepareSettings& settings) {
  int64_t lines = counts.lines;  // includes lines that are not trained on
  for (size_t s = 1; s < kSplits; ++s) lines += counts.splits[s].lines;
  const std::string unit = name_of(settings.rules.unit);
  if (lines == 0) throw UserError(str("[data] no line or record of the text files holds a ", unit));
  const double fractions[kSplits] = {settings.train_fraction, settings.valid_fraction, settings.test_fraction};
  for (size_t s = 0; s < kSplits; ++s) {
    const int64_t tokens = counts.splits[s].words + (settings.end_of_line ? counts.splits[s].lines : 0);
    if (fractions[s] == 0 || tokens >= 2) continue;
    const std::string drawn = str(counts.splits[s].lines, " of the ", lines, lines == 1 ? " line" : " lines", " with ",
                                  unit, "s (", tokens, " tokens; at least 2 are needed)");
    if (fractions[s] == 1)
      throw UserError(str("[data] the ", kSplitNames[s], " split has ", drawn, "; give it more text"));
    throw UserError(str("[data] the ", kSplitNames[s], " split has ", drawn,
                        ". A split takes whole lines at random: write a sentence or a paragraph a line (`fold -s` "
                        "breaks long lines), use more text, or another data.",
                        kSplitNames[s], "_fraction (now ", fractions[s], ")"));
  }
}

// Orders the types of the training split by falling count, equal counts by bytes, so that ids do not depend on the
// machine.
std::vector<Vocabulary::Entry> choose_words(const Counts& counts, const PrepareSettings& settings,
                                            PrepareReport& report) {
  const WordTable& table = counts.words;
  std::vector<int64_t> order;
  int64_t unknown = 0, end_of_line = settings.end_of_line ? counts.lines : 0;
  for (int64_t i = 0; i < table.size(); ++i) {
    if (table.word(i) == kUnkWord)
      unknown += table.count(i);
    else if (table.word(i) == kEosWord)
      end_of_line += table.count(i);
    else
      order.push_back(i);
  }
  report.types = static_cast<int64_t>(order.size());
  const int64_t places = settings.vocab_size == 0 ? report.types : settings.vocab_size - 2;
  check_vocabulary(settings.vocab_size, report.types, settings.rules.unit);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return table.count(a) != table.count(b) ? table.count(a) > table.count(b) : table.word(a) < table.word(b);
  });
  std::vector<Vocabulary::Entry> entries{{std::string(kUnkWord), unknown}, {std::string(kEosWord), end_of_line}};
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t w = order[i];
    if (i < static_cast<size_t>(places))
      entries.push_back({std::string(table.word(w)), table.count(w)});
    else
      entries[0].count += table.count(w);
  }
  if (places < report.types) {
    report.first_lost = table.word(order[static_cast<size_t>(places)]);
    report.first_lost_count = table.count(order[static_cast<size_t>(places)]);
  }
  return entries;
}

// The shards of all splits, to which each chunk appends its data.
struct Shards {
  std::array<std::unique_ptr<ShardWriter>, kSplits> tokens, lengths;  // lengths: only for characters and bytes
  Shards(const std::string& directory, Unit unit) {
    for (size_t s = 0; s < kSplits; ++s) {
      const std::string stem = str(directory, "/", kSplitNames[s]);
      tokens[s] = std::make_unique<ShardWriter>(stem + ".bin");
      if (unit != Unit::word) lengths[s] = std::make_unique<ShardWriter>(stem + ".strings.bin");
    }
  }
  void finish() {
    for (size_t s = 0; s < kSplits; ++s) {
      tokens[s]->finish();
      if (lengths[s]) lengths[s]->finish();
    }
  }
};

struct Encoded {
  std::vector<int32_t> ids, lengths;
  int64_t unknown = 0;
};

void encode_sentence(const Sentence& s, const PrepareSettings& settings, const Vocabulary& vocabulary, Encoded& out) {
  const size_t before = out.ids.size();
  const bool bytes = settings.rules.unit == Unit::byte;
  for (const std::string_view word : s.words) {
    out.ids.push_back(vocabulary.id(word));
    out.unknown += out.ids.back() == Vocabulary::kUnk;
  }
  if (bytes)
    for (const char c : s.text) out.ids.push_back(static_cast<unsigned char>(c));
  if (settings.end_of_line) out.ids.push_back(bytes ? '\n' : Vocabulary::kEos);
  if (settings.rules.unit != Unit::word) out.lengths.push_back(static_cast<int32_t>(out.ids.size() - before));
}

void write_shards(const Text& text, const Vocabulary& vocabulary, const std::string& directory, PrepareReport& report) {
  const PrepareSettings& settings = text.settings;
  Shards shards(directory, settings.rules.unit);
  ChunkReader reader(text.files, settings.chunk_bytes, "writing tokens:");
  std::vector<Worker> workers = make_workers(settings);
  Turnstile turnstile;
  auto encode = [&](Chunk& chunk, int thread) {
    std::array<Encoded, kSplits> encoded;
    for_each_sentence(text, chunk, workers[static_cast<size_t>(thread)], Lines::used, [&](const Sentence& s) {
      encode_sentence(s, settings, vocabulary, encoded[static_cast<size_t>(s.split)]);
    });
    if (!turnstile.wait_for(chunk.index)) return;
    for (size_t s = 0; s < kSplits; ++s) {
      shards.tokens[s]->append(encoded[s].ids);
      if (shards.lengths[s]) shards.lengths[s]->append(encoded[s].lengths);
      report.splits[s].unknown += encoded[s].unknown;
    }
    turnstile.pass();
  };
  for_each_chunk(reader, settings.threads, encode, [&] { turnstile.break_open(); });
  shards.finish();
}

int64_t count_true(const std::vector<bool>& flags) {
  return std::count(flags.begin(), flags.end(), true);
}

}  // namespace

double PrepareReport::oov() const {
  return splits[0].words ? static_cast<double>(splits[0].unknown) / static_cast<double>(splits[0].words) : 0;
}

const char* name_of(Unit unit) {
  return unit == Unit::word ? "word" : unit == Unit::character ? "character" : "byte";
}

std::string PrepareReport::text(int64_t vocab_size) const {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  const std::string name = name_of(unit);
  if (unit == Unit::byte)
    out << "vocabulary: the 256 bytes, " << types << " of them in the training split\n";
  else
    out << "vocabulary: " << vocab_size << " entries with <unk> and </s>, of " << types << " types; coverage "
        << 100 * (1 - oov()) << " %, OOV " << 100 * oov() << " % of the training " << name << "s\n";
  if (!first_lost.empty())
    out << "first lost " << name << ": '" << first_lost << "' (" << first_lost_count << " times)\n";
  if (invalid > 0) out << "left out: bytes that are not UTF-8, of " << invalid << " strings\n";
  if (repeated > 0) out << "left out: " << repeated << " strings that equal an earlier one\n";
  for (size_t s = 0; s < kSplits; ++s) {
    if (splits[s].lines == 0) continue;
    out << kSplitNames[s] << ": " << splits[s].lines << (unit == Unit::word ? " lines, " : " strings, ")
        << splits[s].words << " " << name << "s";
    if (unit != Unit::byte)
      out << ", OOV " << 100 * static_cast<double>(splits[s].unknown) / static_cast<double>(splits[s].words) << " %";
    out << "\n";
  }
  return out.str();
}

Split split_of_line(const PrepareSettings& settings, Split forced, int64_t line) {
  if (forced != Split::drawn) return forced;
  if (settings.valid_fraction == 0 && settings.test_fraction == 0) return Split::train;
  const double u = RandomKey(settings.split_seed).fold("split").uniform(static_cast<uint64_t>(line));
  if (u < settings.valid_fraction) return Split::valid;
  return u < settings.valid_fraction + settings.test_fraction ? Split::test : Split::train;
}

void check_vocabulary(int64_t vocab_size, int64_t types, Unit unit) {
  if (vocab_size - 2 <= types || unit == Unit::byte) return;
  throw UserError(str("[data] data.vocab_size ", vocab_size,
                      " (<unk> and </s> included) is more than the training text has: ", types, " distinct ",
                      name_of(unit), "s; use at most ", types + 2));
}

namespace {

int64_t types_of(const Counts& counts, Unit unit) {
  if (unit == Unit::byte) return 256 - std::count(counts.bytes.begin(), counts.bytes.end(), 0);
  int64_t types = 0;
  for (int64_t i = 0; i < counts.words.size(); ++i) {
    const std::string_view word = counts.words.word(i);
    types += word != kUnkWord && word != kEosWord;
  }
  return types;
}

}  // namespace

PrepareReport prepare(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                      const std::string& directory) {
  PrepareReport report;
  report.unit = settings.rules.unit;
  const std::vector<bool> repeated = find_repeated(files, settings, directory);
  report.repeated = count_true(repeated);
  const Text text{files, settings, repeated};
  Vocabulary vocabulary;
  {
    const Counts counts = count_words(text);
    check_splits(counts, settings);
    report.splits = counts.splits;
    report.types = types_of(counts, settings.rules.unit);
    report.invalid = counts.invalid;
    vocabulary = settings.rules.unit == Unit::byte ? Vocabulary::bytes(counts.bytes)
                                                   : Vocabulary(choose_words(counts, settings, report));
  }  // frees the counts: they are as large as the vocabulary of all types, and the second pass does not need them
  write_shards(text, vocabulary, directory, report);
  vocabulary.save(directory + "/vocab.tsv");
  return report;
}

}  // namespace lmx::data
