#include "app/pairs/parallel.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "app/prepare/cache.h"
#include "app/prepare/chunks.h"
#include "app/prepare/prepare.h"
#include "app/text/subwords.h"
#include "base/output_file.h"
#include "data/shard.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::app {
namespace {

constexpr size_t kChunkBytes = 2 << 20;  // of source text

int64_t count_words(std::string_view words) {
  return words.empty() ? 0 : std::count(words.begin(), words.end(), ' ') + 1;
}

// One text of the preparation: the files of a split, or of a part of the training split.
struct Reading {
  const std::vector<PairFiles>& files;
  Split split = Split::drawn;
  bool ready = false;
  const std::string& joiner;
  PairRange range = {};
  int64_t max_words = 0;  // for the training split only
  double max_ratio = 0;
  bool subwords = true;
  double wrong_targets = 0;
  std::string place = {};  // of a part: start of the message that the part has no pairs
};

// Returns the texts of the training split, the main text first.
std::vector<Reading> training_texts(const ParallelConfig& c, const ParallelSources& s) {
  std::vector<Reading> texts{{s.files[0], Split::drawn, s.ready, s.joiner, s.range, c.max_words, c.max_ratio}};
  for (const PartSources& p : s.parts)
    texts.push_back({p.files, Split::train, p.ready, p.joiner, p.range, p.config.max_words, p.config.max_ratio,
                     p.config.subwords, p.config.wrong_targets, p.place});
  return texts;
}

// Calls visit(pair) for the pairs of a chunk within the text's range. A wrong target is the target of the previous
// pair, so the first pair of a chunk keeps its own target. Chunks do not depend on the number of threads.
void for_each_read(const Reading& text, uint64_t seed, const PairChunk& chunk,
                   const std::function<void(const PairLine&)>& visit) {
  const RandomKey key = RandomKey(seed).fold("wrong targets");
  std::string_view before;
  for_each_pair(text.files[chunk.file], chunk, [&](const PairLine& pair) {
    PairLine read = pair;
    const bool wrong =
        text.wrong_targets > 0 && before.data() && key.uniform(static_cast<uint64_t>(pair.number)) < text.wrong_targets;
    if (wrong) read.target = before;
    before = pair.target;
    if (text.range.holds(pair.number)) visit(read);
  });
}

// Splits a pair into words and decides whether it is kept.
class PairTokenizer {
 public:
  explicit PairTokenizer(const ParallelSources& sources) : source_(sources.source), target_(sources.target) {}

  struct Words {
    std::string source, target;  // one space between words
  };

  // Counts the pair in `counts`. Returns false if it is dropped. Limits apply to the training split only.
  bool split(const Reading& text, const PairLine& pair, Split split, Words& words, PairCounts& counts) const {
    words.source = cut(text, source_, pair.source);
    words.target = cut(text, target_, pair.target);
    const int64_t n = count_words(words.source), m = count_words(words.target);
    const int64_t longer = std::max(n, m), shorter = std::min(n, m);
    ++counts.read;
    if (shorter == 0) {
      ++counts.empty;
      return false;
    }
    if (split == Split::train && text.max_words > 0 && longer > text.max_words) {
      ++counts.too_long;
      return false;
    }
    if (split == Split::train && text.max_ratio > 0 &&
        static_cast<double>(longer) > text.max_ratio * static_cast<double>(shorter)) {
      ++counts.bad_ratio;
      return false;
    }
    ++counts.kept;
    counts.words[0] += n;
    counts.words[1] += m;
    return true;
  }

 private:
  static std::string cut(const Reading& text, const LineTokenizer& lines, std::string_view line) {
    return text.ready ? lines.ready_words(line, text.joiner) : lines.words(line);
  }
  LineTokenizer source_, target_;
};

PrepareSettings split_rule(const ParallelConfig& config, const ParallelSources& sources) {
  PrepareSettings rule;
  rule.valid_fraction = sources.files[1].empty() ? config.valid_fraction : 0;
  rule.test_fraction = sources.files[2].empty() ? config.test_fraction : 0;
  rule.split_seed = static_cast<uint64_t>(config.split_seed);
  return rule;
}

void add_words(WordTable& table, std::string_view words) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    table.add(words.substr(at, end - at), 1);
    at = end + 1;
  }
}

void add(PairCounts& sum, const PairCounts& more) {
  sum.read += more.read;
  sum.kept += more.kept;
  sum.empty += more.empty;
  sum.too_long += more.too_long;
  sum.bad_ratio += more.bad_ratio;
  for (size_t side = 0; side < 2; ++side) {
    sum.words[side] += more.words[side];
    sum.subwords[side] += more.subwords[side];
    sum.unknown[side] += more.unknown[side];
  }
}

void check_split(size_t s, const PairCounts& c, double fraction) {
  if (c.kept > 0 || (c.read == 0 && fraction == 0)) return;
  throw UserError(str("[data] the ", kSplitNames[s], " split keeps none of its ", c.read, " pairs (", c.empty,
                      " with an empty side, ", c.too_long, " too long, ", c.bad_ratio, " by the ratio of lengths)",
                      s > 0 && fraction > 0
                          ? str("; use more text, or another data.", kSplitNames[s], "_fraction (now ", fraction, ")")
                          : ""));
}

// Returns the distinct words of both sides of the training text, on which subwords are trained. UserError: there are
// none.
WordTable count_training_words(const ParallelConfig& config, const ParallelSources& sources,
                               const PairTokenizer& tokenizer) {
  const PrepareSettings rule = split_rule(config, sources);
  const int threads = preparing_threads(config.threads);
  std::vector<WordTable> tables(static_cast<size_t>(threads));
  std::vector<PairCounts> counts(tables.size());
  for (const Reading& text : training_texts(config, sources)) {
    if (!text.subwords) continue;
    PairReader reader(text.files, kChunkBytes, "counting words:");
    for_each_pair_chunk(reader, threads, [&](PairChunk& chunk, int thread) {
      PairTokenizer::Words words;
      WordTable& table = tables[static_cast<size_t>(thread)];
      PairCounts& mine = counts[static_cast<size_t>(thread)];
      for_each_read(text, rule.split_seed, chunk, [&](const PairLine& pair) {
        const Split split = split_of_line(rule, text.split, pair.number);
        if (split != Split::train || !tokenizer.split(text, pair, split, words, mine)) return;
        add_words(table, words.source);
        add_words(table, words.target);
      });
    });
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    add(counts[0], counts[t]);
    for (int64_t i = 0; i < tables[t].size(); ++i) tables[0].add(tables[t].word(i), tables[t].count(i));
    tables[t] = {};
  }
  check_split(0, counts[0], 1);
  return std::move(tables[0]);
}

// The pairs of a split in one chunk, or in all chunks.
struct Encoded {
  std::array<std::vector<int32_t>, 2> ids;  // source, target; each sentence ends with </s>
  std::array<std::string, 2> lines;         // of valid and test
  PairCounts counts;
};

template <class Encoder>
void append_sentence(Encoded& out, size_t side, const std::string& words, Encoder& encoder) {
  std::vector<int32_t>& ids = out.ids[side];
  const size_t begin = ids.size();
  encoder.encode(words, ids);
  out.counts.subwords[side] += static_cast<int64_t>(ids.size() - begin);
  out.counts.unknown[side] += std::count(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), Vocabulary::kUnk);
  ids.push_back(Vocabulary::kEos);
}

class Writer {
 public:
  Writer(const ParallelConfig& config, const ParallelSources& sources, const Subwords& subwords,
         const std::string& directory)
      : config_(config),
        sources_(sources),
        subwords_(subwords),
        tokenizer_(sources),
        frequency_(static_cast<size_t>(subwords.size())) {
    for (int t = preparing_threads(config.threads); t > 0; --t) encoders_.emplace_back(subwords);
    for (size_t s = 0; s < kSplits; ++s) {
      for (size_t side = 0; side < 2; ++side) {
        const std::string stem = str(directory, "/", kSplitNames[s], side ? ".target" : ".source");
        shards_[s][side] = std::make_unique<ShardWriter>(stem + ".bin");
        if (s > 0) texts_[s][side] = std::make_unique<OutputFile>(stem + ".txt");
      }
    }
  }

  // Writes all pairs of a text, whether or not splits are sampled from it. UserError: a part of the training split has
  // none.
  void write(const Reading& text) {
    const PrepareSettings rule = split_rule(config_, sources_);
    const PairCounts before = counts_[0];
    PairReader reader(text.files, kChunkBytes, "writing subwords:");
    Turnstile turnstile;
    const auto encode = [&](PairChunk& chunk, int thread) {
      std::array<Encoded, kSplits> splits;
      PairTokenizer::Words words;
      for_each_read(text, rule.split_seed, chunk, [&](const PairLine& pair) {
        const Split split = split_of_line(rule, text.split, pair.number);
        Encoded& out = splits[static_cast<size_t>(split)];
        if (!tokenizer_.split(text, pair, split, words, out.counts)) return;
        append_pair(out, words, encoders_[static_cast<size_t>(thread)]);
        if (split == Split::train) return;
        out.lines[0].append(pair.source).push_back('\n');
        out.lines[1].append(pair.target).push_back('\n');
      });
      if (!turnstile.wait_for(chunk.index)) return;
      for (size_t s = 0; s < kSplits; ++s) append(s, splits[s]);
      turnstile.pass();
    };
    for_each_pair_chunk(reader, preparing_threads(config_.threads), encode, [&] { turnstile.break_open(); });
    if (text.split != Split::drawn && text.split != Split::train) return;
    const int64_t kept = counts_[0].kept - before.kept;
    if (kept == 0)
      throw UserError(str(text.place.empty() ? "[data] the main text" : text.place + "the part", " keeps none of its ",
                          counts_[0].read - before.read, " pairs for training"));
    part_pairs_.push_back(kept);
  }

  void finish(ParallelReport& report) {
    for (size_t s = 0; s < kSplits; ++s) {
      for (size_t side = 0; side < 2; ++side) {
        const int64_t tokens = shards_[s][side]->finish();
        if (s == 0 && side == 1) report.train_tokens = tokens;
        if (texts_[s][side]) texts_[s][side]->close();
      }
    }
    report.splits = counts_;
    if (part_pairs_.size() > 1) report.part_pairs = part_pairs_;
  }

  Vocabulary vocabulary() const {
    std::vector<Vocabulary::Entry> entries;
    for (int32_t id = 0; id < static_cast<int32_t>(subwords_.size()); ++id)
      entries.push_back({subwords_.piece(id), frequency_[static_cast<size_t>(id)]});
    return Vocabulary(std::move(entries));
  }

 private:
  void append_pair(Encoded& out, const PairTokenizer::Words& words, WordEncoder& encoder) const {
    if (config_.subword_model.empty()) {
      append_sentence(out, 0, words.source, encoder);
      append_sentence(out, 1, words.target, encoder);
    } else {  // a given model may be of another kind, with pieces that span spaces
      append_sentence(out, 0, words.source, subwords_);
      append_sentence(out, 1, words.target, subwords_);
    }
  }

  void append(size_t s, const Encoded& part) {
    add(counts_[s], part.counts);
    for (size_t side = 0; side < 2; ++side) {
      shards_[s][side]->append(part.ids[side]);
      if (texts_[s][side]) texts_[s][side]->write(part.lines[side].data(), part.lines[side].size());
      if (s > 0) continue;
      for (const int32_t id : part.ids[side]) ++frequency_[static_cast<size_t>(id)];
    }
  }

  const ParallelConfig& config_;
  const ParallelSources& sources_;
  const Subwords& subwords_;
  const PairTokenizer tokenizer_;
  std::array<std::array<std::unique_ptr<ShardWriter>, 2>, kSplits> shards_;
  std::array<std::array<std::unique_ptr<OutputFile>, 2>, kSplits> texts_;
  std::array<PairCounts, kSplits> counts_;
  std::vector<int64_t> part_pairs_;    // of the training split
  std::vector<WordEncoder> encoders_;  // one per thread
  std::vector<int64_t> frequency_;     // of each subword in the training split
};

}  // namespace

ParallelReport prepare_parallel(const ParallelConfig& config, const ParallelSources& sources,
                                const std::string& directory) {
  ParallelReport report;
  const std::string model = directory + "/" + kSubwordFile;
  {
    const WordTable words = count_training_words(config, sources, PairTokenizer(sources));
    report.types = words.size();
    if (config.subword_model.empty())
      write_file(model, train_subwords(words, {config.vocab_size, config.tokenizer == "none"}));
    else
      write_file(model, Subwords::load(config.subword_model)->bytes());
  }  // frees the words, which are not needed any more
  const std::shared_ptr<const Subwords> subwords = Subwords::load(model);
  if (subwords->size() != config.vocab_size) {
    throw UserError(str("[data] subword model ", config.subword_model, " has ", subwords->size(),
                        " subwords, data.vocab_size says ", config.vocab_size));
  }
  Writer writer(config, sources, *subwords, directory);
  for (const Reading& text : training_texts(config, sources)) writer.write(text);
  for (size_t s = 1; s < kSplits; ++s)
    writer.write({sources.files[s], static_cast<Split>(s), sources.ready, sources.joiner});
  writer.finish(report);
  const PrepareSettings rule = split_rule(config, sources);
  check_split(1, report.splits[1], rule.valid_fraction);
  check_split(2, report.splits[2], rule.test_fraction);
  writer.vocabulary().save(directory + "/vocab.tsv");
  return report;
}

}  // namespace lmx::app
