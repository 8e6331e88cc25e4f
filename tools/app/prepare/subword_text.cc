// The preparation of text as subwords of a tokenizer, which is trained on the training split or read from a file.
#include <algorithm>

#include "app/prepare/sentences.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

// The pieces of the whole training split, also of documents outside `train_fraction`.
WordTable count_training_pieces(const Text& text, std::array<SplitCounts, kSplits>& documents) {
  const PrepareSettings& settings = text.settings;
  ChunkReader reader(text.files, settings.chunk_bytes, "counting words:");
  std::vector<WordTable> pieces(static_cast<size_t>(settings.threads));
  std::vector<std::array<SplitCounts, kSplits>> counts(pieces.size());
  std::vector<Worker> workers = make_workers(settings);
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int t) {
    const auto thread = static_cast<size_t>(t);
    for_each_sentence(text, chunk, workers[thread], Lines::all, [&](const Sentence& s) {
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
  return make_tokenizer({train_text_subwords(pieces, text.settings.vocab_size), "the trained model", true});
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

}  // namespace lmx::data
