// Beam search.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lmx/context.h"
#include "lmx/model.h"

namespace lmx::app {

// A hypothesis of l tokens, including </s>, has the score logprob / penalty(l). The penalty is l^alpha for fairseq, ((5
// + l) / 6)^alpha for wu (Wu et al. 2016), and 1 for none.
struct SearchOptions {
  int64_t beam = 4;  // hypotheses that are kept at each length; 1: greedy
  std::string length_penalty = "fairseq";
  double alpha = 0.6;
  double max_factor = 1,
         max_offset = 50;      // a source of x tokens has a translation of at most a x + b tokens, without </s>
  int64_t min_length = 0;      // tokens, without </s>
  bool write_unknown = false;  // whether <unk> may be written
};
// UserError: a value out of its range.
void check_search(const SearchOptions& options);
// Reads "fairseq:0.6", "wu:1" or "none" into `options`. UserError: another text; the message lists the possible values.
void read_length_penalty(const std::string& text, SearchOptions& options);

struct Hypothesis {
  std::vector<int32_t> ids;  // without </s>
  double logprob = 0;        // nats, </s> included
  double score = 0;
};

// Returns the likeliest translations of the sentences whose decoding has just begun: for each sentence at most `beam`,
// by falling score. `source_lengths` are in tokens. A sentence is done when `beam` of its hypotheses have ended, each
// among the `beam` likeliest continuations of its step. At the sentence's greatest length </s> is forced. Between equal
// likelihoods the earlier hypothesis wins, then the smaller id, so the result depends on the logits alone. `logits`
// maps features (rows, D) to f32 (rows, V). RunError: logits that are not finite.
std::vector<std::vector<Hypothesis>> beam_search(Context& ctx, Decoding& decoding,
                                                 const std::function<Tensor(const Tensor&)>& logits,
                                                 std::span<const int64_t> source_lengths, const SearchOptions& options);

}  // namespace lmx::app
