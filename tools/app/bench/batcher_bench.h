// How evenly batchers of parallel text share out work (Ott et al. 2018, section 5), measured on sentences of made-up
// words: what `lmx bench batchers` prints.
#pragma once

#include <cstdint>
#include <string>

#include "lmx/config.h"
#include "lmx/context.h"
#include "lmx/data.h"

namespace lmx {

// n pairs of lengths as news in subwords has them: the target's about log-normal with median 22 and deviation 0.6 of
// the logarithm, the source's that times a log-normal ratio of deviation 0.2; 1 to 119 words and </s>.
PairArray news_pairs(int64_t n, int64_t vocabulary, uint64_t seed);

struct BatcherBenchOptions {
  Node model;  // as a recipe's `model`
  int64_t vocabulary = 8000, pairs = 20000;
  int64_t ranks = 8;          // one sub-batch each a step
  int64_t steps = 6;          // timed, from the first epoch
  int64_t repeats = 3;        // of each sub-batch, of which the quickest counts
  int64_t max_tokens = 1000;  // of a sub-batch, in target tokens
  uint64_t seed = 1;
};

struct BatcherBench {
  int64_t sub_batches = 0;                  // of an epoch
  double sentences = 0, target_tokens = 0;  // of one, mean over the epoch
  double padding = 0;  // share of both sides, were the sentences of a sub-batch brought to one length; over the epoch
  int64_t timed = 0;   // steps
  double mean_s = 0;   // of a forward and backward
  double spread = 0;   // (max - mean) / mean over the ranks of a step, mean over the steps
  double tokens_per_s = 0;  // target tokens of the timed steps by the time of each step's slowest sub-batch
  int64_t table = 0;        // entries that the batcher had measured before
  double table_s = 0;       // and how long that took
};
// A batcher of pairs by its name, on this thread's threads. UserError: no such batcher, or not one of pairs.
BatcherBench bench_batcher(Context& ctx, const std::string& name, const BatcherBenchOptions& options);

}  // namespace lmx
