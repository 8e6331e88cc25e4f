// Translation by a trained run: search, translation of text, likelihood of given pairs, averages of checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/bleu.h"
#include "lmx/context.h"
#include "lmx/model.h"

namespace lmx {

// A hypothesis of l tokens, </s> counted, has the score logprob / penalty(l): fairseq l^alpha, wu ((5 + l) / 6)^alpha
// (Wu et al. 2016), none 1.
struct SearchOptions {
  int64_t beam = 4;  // hypotheses that are kept at each length; 1: greedy
  std::string length_penalty = "fairseq";
  double alpha = 0.6;
  double max_factor = 1,
         max_offset = 50;      // a source of x tokens has a translation of at most a x + b, </s> not counted
  int64_t min_length = 0;      // likewise
  bool write_unknown = false;  // whether <unk> may be written
};
// UserError: a value out of its range.
LMX_API void check_search(const SearchOptions& options);
// Reads "fairseq:0.6", "wu:1", "none" into `options`. UserError names what there is.
LMX_API void read_length_penalty(const std::string& text, SearchOptions& options);

struct Hypothesis {
  std::vector<int32_t> ids;  // without </s>
  double logprob = 0;        // nats, </s> included
  double score = 0;
};

// The likeliest translations of the sentences whose decoding has just begun, `source_lengths` in tokens: for each
// sentence at most `beam`, by falling score. A sentence is done once `beam` of its hypotheses have ended (each among
// the `beam` likeliest continuations when it did), or at its greatest length, where </s> is forced. Equal likelihoods
// go to the earlier hypothesis, then to the smaller id, so that the result depends on the logits alone. `logits` maps
// features (rows, D) to f32 (rows, V). RunError: logits that are no numbers.
LMX_API std::vector<std::vector<Hypothesis>> beam_search(Context& ctx, Decoding& decoding,
                                                         const std::function<Tensor(const Tensor&)>& logits,
                                                         std::span<const int64_t> source_lengths,
                                                         const SearchOptions& options);

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
class LMX_API Translator {
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
LMX_API TranslatedFile translate_file(const std::string& run, const TranslateOptions& options, const std::string& input,
                                      const std::string& output);

struct ScorePairsOptions {
  std::string checkpoint = "last";
  int64_t batch = 32;
  int64_t max_length = 1000;  // subwords of a side; a pair with a longer one is not scored
  bool json = false;          // a JSON object a line, with all digits (docs/json.md)
};
// Likelihoods of given pairs of sentences: for line i of `source` and `target` a line `mean<TAB>sum<TAB>tokens` of
// log-likelihoods in nats over the target's tokens, </s> among them; `-inf<TAB>-inf<TAB>0` for a pair that is too long.
// Returns the number of pairs. UserError: different line counts (both are named), after all pairs are written.
LMX_API int64_t score_files(const std::string& run, const ScorePairsOptions& options, const std::string& source,
                            const std::string& target, const std::string& output);

// In a run's folder: the mean of its last checkpoints.
inline constexpr const char* kMeanFile = "mean.safetensors";
// The folders of a run's last `most` checkpoints, oldest first; of all where it keeps fewer.
LMX_API std::vector<std::string> last_checkpoints(const std::string& run, int64_t most);
// Which checkpoints an average is of: paths of checkpoints and files, or of a run its last or best (by validation)
// ones.
struct AverageOptions {
  std::vector<std::string> checkpoints;
  std::string run;
  int64_t last = 0, best = 0;
};
// The mean of their parameters, each summed in f64 and rounded once, as safetensors at `output`. Returns the
// checkpoints. UserError: none, fewer than asked for, parameters whose names, shapes or types differ.
LMX_API std::vector<std::string> average_checkpoints(const AverageOptions& options, const std::string& output);

}  // namespace lmx
