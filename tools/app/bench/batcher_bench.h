// Measures how evenly batchers of parallel text divide work (Ott et al. 2018, section 5), on sentences of artificial
// words. Prints the results of `lmx bench batchers`.
#pragma once

#include <cstdint>
#include <string>

#include "lmx/config.h"
#include "lmx/context.h"
#include "lmx/data.h"

namespace lmx::app {

// Returns n pairs with lengths like news text in subwords. The target's length is about log-normal with median 22 and a
// standard deviation of 0.6 in the logarithm. The source's length is the target's times a log-normal ratio with
// deviation 0.2. All sentences have 1 to 119 words and </s>.
PairArray news_pairs(int64_t n, int64_t vocabulary, uint64_t seed);

struct BatcherBenchOptions {
  Node model;  // as `model` of a recipe
  int64_t vocabulary = 8000, pairs = 20000;
  int64_t ranks = 8;          // each has one sub-batch per step
  int64_t steps = 6;          // timed steps, from the start of the first epoch
  int64_t repeats = 3;        // passes of each sub-batch; the quickest one counts
  int64_t max_tokens = 1000;  // target tokens per sub-batch
  uint64_t seed = 1;
};

struct BatcherBench {
  int64_t sub_batches = 0;                  // per epoch
  double sentences = 0, target_tokens = 0;  // per sub-batch, mean over the epoch
  double padding = 0;  // share of padding on both sides if sub-batches were padded to equal lengths; over the epoch
  int64_t timed = 0;   // number of timed steps
  double mean_s = 0;   // of a forward and backward pass
  double spread = 0;   // (max - mean) / mean over the ranks of a step, mean over the steps
  double tokens_per_s = 0;  // target tokens of the timed steps, divided by the sum of each step's slowest time
  int64_t table = 0;        // number of entries that the batcher measured in advance
  double table_s = 0;       // time that this took
};
// Measures a batcher of pairs with num_threads() threads. UserError: no such batcher, or one that is not for pairs.
BatcherBench bench_batcher(Context& ctx, const std::string& name, const BatcherBenchOptions& options);

}  // namespace lmx::app
