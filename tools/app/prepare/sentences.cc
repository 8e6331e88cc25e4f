#include "app/prepare/sentences.h"

#include <algorithm>

#include "app/prepare/chunks.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "app/text/utf8.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::app {
namespace {

// Returns whether training uses the line. The lines of a smaller fraction are a subset of those of a larger one.
bool trains(const PrepareSettings& settings, int64_t line) {
  return settings.train_fraction >= 1 ||
         RandomKey(settings.split_seed).fold("train").uniform(static_cast<uint64_t>(line)) < settings.train_fraction;
}

// The tokens of a string: of words and characters, those that `worker` has found.
int64_t tokens_of(const PrepareSettings& settings, std::string_view text, const TextWorker& worker) {
  if (settings.rules.unit == Unit::subword) return 0;
  return static_cast<int64_t>(settings.rules.unit == Unit::byte ? text.size() : worker.words.size());
}

// Splits `text` into words or characters; false if it is not UTF-8.
bool split(const PrepareSettings& settings, std::string_view text, TextWorker& worker) {
  worker.words.clear();
  if (settings.rules.unit == Unit::byte) return true;
  if (settings.rules.unit == Unit::subword) return find_invalid_utf8(text) == kValidUtf8;
  return worker.tokenizer.split(text, worker.words) == Tokenizer::kValid;
}

// The shards of all splits, to which each chunk appends its data.
struct Shards {
  std::array<std::unique_ptr<ShardWriter>, kSplits> tokens, lengths;  // lengths: not for words
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

}  // namespace

std::vector<TextWorker> make_workers(const PrepareSettings& settings) {
  std::vector<TextWorker> workers;
  for (int t = 0; t < settings.threads; ++t) workers.emplace_back(settings);
  return workers;
}

void for_each_sentence(const Text& text, const Chunk& chunk, TextWorker& worker, LineChoice wanted,
                       const std::function<void(const Sentence&)>& visit) {
  const PrepareSettings& settings = text.settings;
  const SourceFile& file = text.files[chunk.file];
  for_each_record(file, chunk, [&](const TextRecord& record) {
    const int64_t line = chunk.first_line + record.line;
    const Split part = split_of_line(settings, chunk.split, line);
    const bool used = part != Split::train || trains(settings, line);
    if (!used && wanted == LineChoice::used) return;
    if (static_cast<size_t>(line) < text.repeated.size() && text.repeated[static_cast<size_t>(line)]) return;
    const std::string_view cleaned = worker.cleaner.clean(record.text);
    worker.invalid += settings.puri && find_invalid_utf8(record.text) != kValidUtf8;
    const bool may_be_empty = file.format == Format::lines && settings.rules.unit != Unit::subword;
    if (cleaned.empty() && (settings.puri || !may_be_empty)) return;
    if (!split(settings, cleaned, worker)) refuse_invalid_utf8(file, chunk, record.raw);
    if (settings.rules.unit == Unit::word && worker.words.empty()) return;
    visit(Sentence{part, cleaned, worker.words, tokens_of(settings, cleaned, worker), line, used});
  });
}

std::vector<bool> find_repeated(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                                const std::string& directory) {
  if (!settings.drop_repeated) return {};
  ChunkReader reader(files, settings.chunk_bytes, "looking for repeated strings:");
  DuplicateFinder finder(directory);
  std::vector<TextWorker> workers = make_workers(settings);
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int thread) {
    for_each_sentence({files, settings, {}}, chunk, workers[static_cast<size_t>(thread)], LineChoice::all,
                      [&](const Sentence& s) { finder.add(s.text, s.line); });
  });
  return finder.finish();
}

std::array<SplitCounts, kSplits> write_shards(const Text& text, const std::string& directory,
                                              const std::function<void(const Sentence&, int, Encoded&)>& encode) {
  const PrepareSettings& settings = text.settings;
  Shards shards(directory, settings.rules.unit);
  ChunkReader reader(text.files, settings.chunk_bytes, "writing tokens:");
  std::vector<TextWorker> workers = make_workers(settings);
  std::array<SplitCounts, kSplits> sums;
  Turnstile turnstile;
  const auto encode_chunk = [&](Chunk& chunk, int thread) {
    std::array<Encoded, kSplits> encoded;
    for_each_sentence(text, chunk, workers[static_cast<size_t>(thread)], LineChoice::used, [&](const Sentence& s) {
      Encoded& to = encoded[static_cast<size_t>(s.split)];
      const size_t before = to.ids.size();
      encode(s, thread, to);
      if (settings.rules.unit != Unit::word) to.lengths.push_back(static_cast<int32_t>(to.ids.size() - before));
    });
    if (!turnstile.wait_for(chunk.index)) return;
    for (size_t s = 0; s < kSplits; ++s) {
      shards.tokens[s]->append(encoded[s].ids);
      if (shards.lengths[s]) shards.lengths[s]->append(encoded[s].lengths);
      sums[s] += encoded[s].counts;
    }
    turnstile.pass();
  };
  for_each_chunk(reader, settings.threads, encode_chunk, [&] { turnstile.break_open(); });
  shards.finish();
  return sums;
}

void check_splits(const PrepareSettings& settings, const std::array<SplitCounts, kSplits>& splits, int64_t lines) {
  const bool subwords = settings.rules.unit == Unit::subword;
  for (size_t s = 1; s < kSplits; ++s) lines += splits[s].lines;
  const std::string unit = name_of(settings.rules.unit), name = subwords ? "document" : "line";
  if (lines == 0) throw UserError(str("[data] no line or record of the text files holds a ", unit));
  const double fractions[kSplits] = {settings.train_fraction, settings.valid_fraction, settings.test_fraction};
  for (size_t s = 0; s < kSplits; ++s) {
    const int64_t tokens = splits[s].words + (settings.end_of_line ? splits[s].lines : 0);
    if (fractions[s] == 0 || tokens >= 2) continue;
    const std::string drawn =
        str("[data] the ", kSplitNames[s], " split has ", splits[s].lines, " of the ", lines, " ", name,
            lines == 1 ? "" : "s", " with ", unit, "s (", tokens, " tokens; at least 2 are needed)");
    if (fractions[s] == 1) throw UserError(drawn + "; give it more text");
    throw UserError(str(drawn, ". A split takes whole ", name, "s at random: ",
                        subwords ? "make them smaller (data.document: paragraph or string)"
                                 : "write a sentence or a paragraph a line (`fold -s` breaks long lines)",
                        ", use more text, or another data.", kSplitNames[s], "_fraction (now ", fractions[s], ")"));
  }
}

// The preparation of text as subwords of a tokenizer, which is trained on the training split or read from a file.

namespace {

// The pieces of the whole training split, also of documents outside `train_fraction`.
WordTable count_training_pieces(const Text& text, std::array<SplitCounts, kSplits>& documents) {
  const PrepareSettings& settings = text.settings;
  ChunkReader reader(text.files, settings.chunk_bytes, "counting words:");
  std::vector<WordTable> pieces(static_cast<size_t>(settings.threads));
  std::vector<std::array<SplitCounts, kSplits>> counts(pieces.size());
  std::vector<TextWorker> workers = make_workers(settings);
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int t) {
    const auto thread = static_cast<size_t>(t);
    for_each_sentence(text, chunk, workers[thread], LineChoice::all, [&](const Sentence& s) {
      SplitCounts& sum = counts[thread][static_cast<size_t>(s.split)];
      sum.lines += 1;
      sum.words += static_cast<int64_t>(s.text.size());
      if (s.split == Split::train) count_pieces(s.text, pieces[thread]);
    });
  });
  WordTable all = std::move(pieces[0]);
  for (size_t t = 1; t < pieces.size(); ++t) {
    for (int64_t i = 0; i < pieces[t].size(); ++i) all.add(pieces[t].word(i), pieces[t].count(i));
    pieces[t] = {};
  }
  for (const auto& own : counts)
    for (size_t s = 0; s < kSplits; ++s) documents[s] += own[s];
  return all;
}

std::shared_ptr<const SubwordTokenizer> trained_tokenizer(const Text& text) {
  std::array<SplitCounts, kSplits> documents;
  const WordTable pieces = count_training_pieces(text, documents);
  check_splits(text.settings, documents, documents[0].lines);  // before the training, with bytes in place of tokens
  return make_tokenizer(
      {train_subwords(pieces, {.vocab_size = text.settings.vocab_size, .text = true}), "the trained model", true});
}

// Encodes documents, and counts the ids of the training split.
class DocumentEncoder {
 public:
  DocumentEncoder(const SubwordTokenizer& tokenizer, DocumentToken place)
      : encoder_(tokenizer.encoder()),
        unk_(tokenizer.unk()),
        eos_(tokenizer.eos()),
        place_(place),
        counts_(static_cast<size_t>(tokenizer.size())) {}

  void encode(const Sentence& s, Encoded& to) {
    const size_t first = to.ids.size();
    if (place_ == DocumentToken::begin) to.ids.push_back(eos_);
    encoder_->append(s.text, to.ids);
    if (place_ == DocumentToken::end) to.ids.push_back(eos_);
    const auto own = std::span(to.ids).subspan(first);
    to.counts.lines += 1;
    to.counts.words += std::ssize(own);
    to.counts.bytes += std::ssize(s.text);
    to.counts.unknown += std::count(own.begin(), own.end(), unk_);
    if (s.split != Split::train) return;
    for (const int32_t id : own) ++counts_[static_cast<size_t>(id)];
  }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::unique_ptr<SubwordTokenizer::Encoder> encoder_;
  int32_t unk_, eos_;
  DocumentToken place_;
  std::vector<int64_t> counts_;
};

}  // namespace

PrepareReport prepare_subwords(const Text& text, const std::string& directory) {
  const PrepareSettings& settings = text.settings;
  const std::shared_ptr<const SubwordTokenizer> tokenizer =
      settings.tokenizer ? settings.tokenizer : trained_tokenizer(text);
  if (tokenizer->eos() < 0 && settings.document_token != DocumentToken::none)
    throw UserError("[data] data.tokenizer_file has no token for the end of a text; set data.document_token to none");
  std::vector<DocumentEncoder> encoders;
  for (int t = 0; t < settings.threads; ++t) encoders.emplace_back(*tokenizer, settings.document_token);
  PrepareReport report;
  report.unit = Unit::subword;
  report.splits = write_shards(text, directory, [&](const Sentence& s, int thread, Encoded& to) {
    encoders[static_cast<size_t>(thread)].encode(s, to);
  });
  check_splits(settings, report.splits, report.splits[0].lines);
  std::vector<int64_t> counts(static_cast<size_t>(tokenizer->size()));
  for (const DocumentEncoder& encoder : encoders)
    for (size_t id = 0; id < counts.size(); ++id) counts[id] += encoder.counts()[id];
  report.types = std::ssize(counts) - std::count(counts.begin(), counts.end(), 0);
  report.tokenizer = str(settings.tokenizer ? "" : "trained: ", tokenizer->description());
  tokenizer->vocabulary(counts).save(directory + "/vocab.tsv");
  save_text_codecs({nullptr, tokenizer}, directory);
  return report;
}

}  // namespace lmx::app
