// Beam search.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

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
void check_search(const SearchOptions& options);
// Reads "fairseq:0.6", "wu:1", "none" into `options`. UserError names what there is.
void read_length_penalty(const std::string& text, SearchOptions& options);

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
std::vector<std::vector<Hypothesis>> beam_search(Context& ctx, Decoding& decoding,
                                                 const std::function<Tensor(const Tensor&)>& logits,
                                                 std::span<const int64_t> source_lengths, const SearchOptions& options);

}  // namespace lmx
