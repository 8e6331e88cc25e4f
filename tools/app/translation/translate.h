// Translation by a trained run: `lmx translate`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/scores/bleu.h"
#include "app/translation/search.h"
#include "data/dataset.h"
#include "recipe/components.h"

namespace lmx::app {

// UserError of `command`: a batch of so many sentences has none, or more than any machine has memory for.
void check_batch(const char* command, int64_t sentences);

struct TranslateOptions {
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  std::string device;               // of a saved run: as recipe_of_run()
  SearchOptions search;             // write_unknown is derived from replace_unknown
  int64_t n_best = 1;               // at most the beam
  int64_t batch = 32;               // sentences per batch; fewer if they are long
  int64_t max_source = 1000;        // subwords; a longer line is translated in pieces, which are joined again
  // How to write a word outside the vocabulary: drop (never), keep (as <unk>), copy (the i-th unknown word of the
  // translation is copied from the i-th unknown word of the source).
  std::string replace_unknown = "drop";
  bool tokenized = false;  // translate_file() writes Translation::tokens instead of its text
};

struct Translation {
  std::string text;    // detokenized
  std::string tokens;  // input for multi-bleu: subwords joined, not detokenized
  double logprob = 0;  // nats; for a line in pieces the sum over the pieces
  double score = 0;
  int64_t length = 0;  // tokens with </s>; 0: the line is empty, and so is its translation
};

// A run, opened to translate. Not thread-safe.
class Translator {
 public:
  // UserError: no run, no such checkpoint, a run that does not translate or lacks its subwords, a vocabulary that does
  // not match the checkpoint, options out of their range.
  Translator(const std::string& run, const TranslateOptions& options);
  ~Translator();
  // Returns the n best translations of each line, best first, in the order of the lines. `done` receives the number of
  // pieces (a line, or a part of a long line) that are translated. REQUIRES: the lines are UTF-8.
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines,
                                                  const std::function<void(int64_t)>& done = {}) const;
  const std::string& checkpoint() const;  // the file or folder of the parameters

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TranslatedFile {
  int64_t lines = 0, tokens = 0;  // of the best translations, </s> included
  double seconds = 0;             // from the first line read to the last one written, without the time to open the run
};
// Returns the lines of output for `lines`, of which the first is line number `first`, counted from 0, of the input.
using TranslationWriter = std::function<std::string(int64_t first, std::span<const std::string> lines,
                                                    const std::vector<std::vector<Translation>>& found)>;
// Translates `input` (`-`: standard input) line by line into `output` (`-`: standard output). If n_best > 1, each line
// of the output is `line ||| text ||| logprob=-4.31 length=7 ||| score`, and `line` counts from 0. An error is
// thrown after everything before it has been written: after one of the input, such as invalid UTF-8, to `output`.part.
TranslatedFile translate_file(const std::string& run, const TranslateOptions& options, const std::string& input,
                              const std::string& output, const TranslationWriter& write = {});

// Translates lines of text with a network whose parameters are in memory: a saved run, or one that is being trained.

// The objects that a TextTranslator uses; all of them outlive it.
struct TranslationModel {
  const Context& ctx;
  const Network& network;
  const ParameterStore& params;
  const TextCodecs& codecs;
  int64_t vocabulary = 0;  // entries
};

class TextTranslator {
 public:
  // UserError: the model does not translate, options out of their range.
  TextTranslator(const TranslationModel& model, const TranslateOptions& options);
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines,
                                                  const std::function<void(int64_t)>& done = {}) const;
  // Returns the best translation of each sentence of the side `source` of prepared pairs.
  std::vector<Translation> translate_sources(const PairArray& pairs,
                                             const std::function<void(int64_t)>& done = {}) const;

 private:
  struct Piece;
  void search_all(std::vector<Piece>& pieces, const std::function<void(int64_t)>& done) const;
  void search_batches(std::span<const std::span<Piece*>> batches, const std::function<void(int64_t)>& done) const;
  std::vector<Piece> pieces_of(std::span<const std::string> lines) const;
  void search(std::span<Piece*> batch) const;
  std::vector<std::vector<Translation>> assembled(const std::vector<Piece>& pieces,
                                                  std::span<const std::string> lines) const;
  Translation written(const Hypothesis& hypothesis, const std::string& line) const;

  TranslationModel model_;
  TranslateOptions options_;
};

// Returns the ids of a line, with </s> at the end. UserError: ids beyond the vocabulary, which means that text codec
// and vocabulary are from different runs.
std::vector<int32_t> encode_line(const TextCodec& codec, std::string_view line, int64_t vocabulary);

// BLEU of a translation run on a split of its data.

struct SplitBleu {
  BleuScore bleu;   // sacreBLEU: 13a on detokenized text against the original lines
  BleuScore multi;  // multi-bleu on the preparation's words
  BleuScore split;  // multi-bleu on the preparation's words with compounds split
  std::string signature;
};
// Translates the sources of "valid" or "test" of `data`, which `recipe.data` names. UserError: the split has no pairs.
SplitBleu bleu_of_split(const TranslationModel& model, const Recipe& recipe, const Dataset& data,
                        const std::string& split, const TranslateOptions& options);

}  // namespace lmx::app
