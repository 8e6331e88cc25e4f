#include "app/translation/split_bleu.h"

#include "app/pairs/parallel.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::train {
namespace {

// The target side of a split: the original lines, and the words of the preparation.
struct References {
  Lines text, words;
  bool dashes_split = false;  // true: `words` are already split at dashes
};

References references_of(const Recipe& recipe, const Dataset& data, const std::string& split) {
  const auto config = read_config<data::ParallelConfig>(recipe.data, "data");
  const data::ParallelSources sources = data::find_parallel(config, "data");
  const data::LineTokenizer tokenizer(sources.target);
  References r;
  r.dashes_split = !sources.ready && sources.target.moses && sources.target.aggressive_dashes;
  r.text = read_lines(data.directory + "/" + split + ".target.txt");
  for (std::string& line : r.text) {
    r.words.push_back(sources.ready ? tokenizer.ready_words(line, sources.joiner) : tokenizer.words(line));
    if (sources.ready) line = tokenizer.text(r.words.back());
  }
  return r;
}

}  // namespace

SplitBleu bleu_of_split(const TranslationModel& model, const Recipe& recipe, const Dataset& data,
                        const std::string& split, const TranslateOptions& options) {
  LMX_CHECK(split == "valid" || split == "test", split);
  const PairArray& pairs = split == "test" ? data.test_pairs : data.valid_pairs;
  if (pairs.size() == 0)
    throw UserError(str("[bleu] the ", split, " split of this run's data holds no pairs of sentences"));
  const References references = references_of(recipe, data, split);
  const TextTranslator translator(model, options);
  const std::vector<Translation> found = translator.translate_sources(
      pairs, [&](int64_t n) { progress_line(str("translated ", n, " of ", pairs.size(), " sentences of ", split)); });
  progress_line("");
  Lines text, words;
  for (const Translation& t : found) {
    text.push_back(t.text);
    words.push_back(t.tokens);
  }
  const BleuOptions sacre;
  return {bleu(text, std::span(&references.text, 1), sacre),
          bleu(words, std::span(&references.words, 1), multi_bleu_options()),
          bleu(words, std::span(&references.words, 1), multi_bleu_options(false, !references.dashes_split)),
          bleu_signature(sacre, 1)};
}

}  // namespace lmx::train
