#include "data/prepare.h"

#include <algorithm>
#include <iomanip>
#include <memory>
#include <sstream>

#include "data/chunk_pool.h"
#include "data/shard.h"
#include "data/utf8.h"
#include "data/word_table.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::data {
namespace {

constexpr std::string_view kUnkWord = "<unk>", kEosWord = "</s>";

// Calls visit(split, words) for each line of the chunk that holds a word.
template <class Visit>
void for_each_sentence(const std::vector<SourceFile>& files, const PrepareSettings& settings, const Chunk& chunk,
                       Tokenizer& tokenizer, Visit&& visit) {
  std::vector<std::string_view> words;
  for_each_line(chunk.text, [&](std::string_view line, int64_t number) {
    const size_t bad = tokenizer.split(line, words);
    if (bad != Tokenizer::kValid) {
      const int64_t offset = chunk.offset + (line.data() - chunk.text.data());
      refuse_invalid_utf8(files[chunk.file].path, chunk.file_line + number, offset, line, bad);
    }
    if (!words.empty()) visit(split_of_line(settings, chunk.split, chunk.first_line + number), words);
  });
}

struct Counts {
  WordTable words;  // of the training split
  std::array<SplitCounts, kSplits> splits;
};

Counts count_words(const std::vector<SourceFile>& files, const PrepareSettings& settings) {
  ChunkReader reader(files, settings.chunk_bytes, "counting words:");
  std::vector<Counts> counts(static_cast<size_t>(settings.threads));
  std::vector<Tokenizer> tokenizers(counts.size(), Tokenizer(settings.rules));
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int thread) {
    Counts& mine = counts[static_cast<size_t>(thread)];
    for_each_sentence(files, settings, chunk, tokenizers[static_cast<size_t>(thread)],
                      [&](Split split, const auto& words) {
                        SplitCounts& totals = mine.splits[static_cast<size_t>(split)];
                        ++totals.lines;
                        totals.words += static_cast<int64_t>(words.size());
                        if (split != Split::train) return;
                        for (const std::string_view word : words) mine.words.add(word, 1);
                      });
  });
  Counts all = std::move(counts[0]);
  for (size_t t = 1; t < counts.size(); ++t) {
    for (int64_t i = 0; i < counts[t].words.size(); ++i)
      all.words.add(counts[t].words.word(i), counts[t].words.count(i));
    for (size_t s = 0; s < kSplits; ++s) {
      all.splits[s].lines += counts[t].splits[s].lines;
      all.splits[s].words += counts[t].splits[s].words;
    }
    counts[t] = {};
  }
  return all;
}

void check_splits(const Counts& counts, const PrepareSettings& settings) {
  int64_t lines = 0;
  for (const SplitCounts& s : counts.splits) lines += s.lines;
  if (lines == 0) throw UserError("[data] the text files hold no word at all");
  const double fractions[kSplits] = {1, settings.valid_fraction, settings.test_fraction};
  for (size_t s = 0; s < kSplits; ++s) {
    const int64_t tokens = counts.splits[s].words + (settings.end_of_line ? counts.splits[s].lines : 0);
    if (fractions[s] == 0 || tokens >= 2) continue;
    throw UserError(str("[data] the corpus is too short: of its ", lines, " lines with words the ", kSplitNames[s],
                        " split drew ", counts.splits[s].lines, " (", tokens,
                        " tokens; at least 2 are needed); use more text",
                        s == 0 ? "" : str(", or another data.", kSplitNames[s], "_fraction (now ", fractions[s], ")")));
  }
}

// Train types by falling count, ties by bytes: what the ids say about frequency must not depend on the machine.
std::vector<Vocabulary::Entry> choose_words(const Counts& counts, const PrepareSettings& settings,
                                            PrepareReport& report) {
  const WordTable& table = counts.words;
  std::vector<int64_t> order;
  int64_t unknown = 0, end_of_line = settings.end_of_line ? counts.splits[0].lines : 0;
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
  check_vocabulary(settings.vocab_size, report.types);
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

void write_shards(const std::vector<SourceFile>& files, const PrepareSettings& settings, const Vocabulary& vocabulary,
                  const std::string& directory, PrepareReport& report) {
  std::array<std::unique_ptr<ShardWriter>, kSplits> shards;
  for (size_t s = 0; s < kSplits; ++s)
    shards[s] = std::make_unique<ShardWriter>(str(directory, "/", kSplitNames[s], ".bin"));
  ChunkReader reader(files, settings.chunk_bytes, "writing tokens:");
  std::vector<Tokenizer> tokenizers(static_cast<size_t>(settings.threads), Tokenizer(settings.rules));
  Turnstile turnstile;
  auto encode = [&](Chunk& chunk, int thread) {
    std::array<std::vector<int32_t>, kSplits> ids;
    std::array<int64_t, kSplits> unknown{};
    for_each_sentence(files, settings, chunk, tokenizers[static_cast<size_t>(thread)],
                      [&](Split split, const auto& words) {
                        const auto s = static_cast<size_t>(split);
                        for (const std::string_view word : words) {
                          ids[s].push_back(vocabulary.id(word));
                          unknown[s] += ids[s].back() == Vocabulary::kUnk;
                        }
                        if (settings.end_of_line) ids[s].push_back(Vocabulary::kEos);
                      });
    if (!turnstile.wait_for(chunk.index)) return;
    for (size_t s = 0; s < kSplits; ++s) {
      shards[s]->append(ids[s]);
      report.splits[s].unknown += unknown[s];
    }
    turnstile.pass();
  };
  for_each_chunk(reader, settings.threads, encode, [&] { turnstile.break_open(); });
  for (auto& shard : shards) shard->finish();
}

}  // namespace

double PrepareReport::oov() const {
  return splits[0].words ? static_cast<double>(splits[0].unknown) / static_cast<double>(splits[0].words) : 0;
}

std::string PrepareReport::text(int64_t vocab_size) const {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  out << "vocabulary: " << vocab_size << " entries with <unk> and </s>, of " << types << " types; coverage "
      << 100 * (1 - oov()) << " %, OOV " << 100 * oov() << " % of the training words\n";
  if (!first_lost.empty()) out << "first lost word: '" << first_lost << "' (" << first_lost_count << " times)\n";
  for (size_t s = 0; s < kSplits; ++s) {
    if (splits[s].lines == 0) continue;
    out << kSplitNames[s] << ": " << splits[s].lines << " lines, " << splits[s].words << " words, OOV "
        << 100 * static_cast<double>(splits[s].unknown) / static_cast<double>(splits[s].words) << " %\n";
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

void check_vocabulary(int64_t vocab_size, int64_t types) {
  if (vocab_size - 2 <= types) return;
  throw UserError(str("[data] data.vocab_size ", vocab_size,
                      " (<unk> and </s> included) is more than the training text has: ", types,
                      " distinct words; use at most ", types + 2));
}

PrepareReport count_text(const std::vector<SourceFile>& files, const PrepareSettings& settings) {
  const Counts counts = count_words(files, settings);
  check_splits(counts, settings);
  PrepareReport report;
  report.splits = counts.splits;
  for (int64_t i = 0; i < counts.words.size(); ++i) {
    const std::string_view word = counts.words.word(i);
    report.types += word != kUnkWord && word != kEosWord;
  }
  return report;
}

PrepareReport prepare(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                      const std::string& directory) {
  PrepareReport report;
  Vocabulary vocabulary;
  {
    const Counts counts = count_words(files, settings);
    check_splits(counts, settings);
    report.splits = counts.splits;
    vocabulary = Vocabulary(choose_words(counts, settings, report));
  }  // the counts are as large as the vocabulary of all types; the second pass does not need them
  write_shards(files, settings, vocabulary, directory, report);
  vocabulary.save(directory + "/vocab.tsv");
  return report;
}

}  // namespace lmx::data
