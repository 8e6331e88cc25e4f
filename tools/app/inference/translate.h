// Translation by a trained run: `lmx translate`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/inference/search.h"

namespace lmx {

struct TranslateOptions {
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  SearchOptions search;             // write_unknown follows from replace_unknown
  int64_t n_best = 1;               // at most the beam
  int64_t batch = 32;               // sentences of a batch; fewer where they are long
  int64_t max_source = 1000;        // subwords; a longer line is translated in pieces, which are put together again
  // What becomes of a word outside the vocabulary: drop (never written), keep (as <unk>), copy (the i-th one of the
  // translation is the i-th unknown word of the source, as it stands there).
  std::string replace_unknown = "drop";
  bool tokenized = false;  // translate_file() writes Translation::tokens in the place of its text
};

struct Translation {
  std::string text;    // detokenized
  std::string tokens;  // as multi-bleu takes it: subwords joined, not detokenized
  double logprob = 0;  // nats, of a line in pieces their sum
  double score = 0;
  int64_t length = 0;  // tokens with </s>; 0: the line was empty and its translation is
};

// A run, opened to translate. Not thread-safe.
class Translator {
 public:
  // UserError: no run, no such checkpoint, a run that does not translate or lacks its subwords, a vocabulary that does
  // not match the checkpoint, options out of their range.
  Translator(const std::string& run, const TranslateOptions& options);
  ~Translator();
  // The n best of each line, best first, in the order of the lines; `done` hears how many sentences are translated.
  // UTF-8 is the caller's business.
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines,
                                                  const std::function<void(int64_t)>& done = {}) const;
  const std::string& checkpoint() const;  // what the parameters were read from

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TranslatedFile {
  int64_t lines = 0, tokens = 0;  // tokens of the best translations, </s> counted
  double seconds = 0;             // from the first line read to the last one written: opening the run is not counted
};
// Translates `input` (`-`: standard input) line by line into `output` (`-`: standard output), where several best are
// asked for as `line ||| text ||| logprob=-4.31 length=7 ||| score`, lines from 0. An error (invalid UTF-8, a full
// disk) comes after everything before it has been written.
TranslatedFile translate_file(const std::string& run, const TranslateOptions& options, const std::string& input,
                              const std::string& output);

}  // namespace lmx
