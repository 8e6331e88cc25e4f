#include "cli/bench/bench.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx_cli {

namespace {

// Returns options with which the benchmark ends in seconds on one core. They test that everything works, not the speed.
lmx::BatcherBenchOptions quick_options(lmx::BatcherBenchOptions o) {
  o.model = lmx::parse_yaml("{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 32, ffn: 64, heads: 2}", "");
  o.vocabulary = 500;
  o.pairs = std::min<int64_t>(o.pairs, 2000);
  o.max_tokens = std::min<int64_t>(o.max_tokens, 400);
  o.ranks = std::min<int64_t>(o.ranks, 4);
  o.steps = std::min<int64_t>(o.steps, 2);
  o.repeats = 1;
  return o;
}

}  // namespace

void bench_batchers(const BatchersBench& asked) {
  BatchersBench o = asked;
  o.options.model = lmx::parse_option(o.model, "--model");
  if (o.quick) o.options = quick_options(o.options);
  for (const std::string& name : o.batchers) {
    lmx::Context ctx;
    const lmx::BatcherBench b = lmx::bench_batcher(ctx, name, o.options);
    const nlohmann::ordered_json line{{"lmx", lmx::kVersion},
                                      {"workload", "batchers"},
                                      {"batcher", name},
                                      {"max_tokens", o.options.max_tokens},
                                      {"ranks", o.options.ranks},
                                      {"threads", lmx::num_threads()},
                                      {"sub_batches", b.sub_batches},
                                      {"sentences", rounded(b.sentences, 10)},
                                      {"target_tokens", rounded(b.target_tokens, 10)},
                                      {"padding", rounded(b.padding, 1e4)},
                                      {"steps", b.timed},
                                      {"sub_batch_s", rounded(b.mean_s, 1e5)},
                                      {"spread", rounded(b.spread, 1e4)},
                                      {"tokens_per_s", rounded(b.tokens_per_s, 10)},
                                      {"table_entries", b.table},
                                      {"table_s", rounded(b.table_s, 10)}};
    std::cout << line.dump() << std::endl;
  }
}

void add_batchers_options(Command command, BatchersBench& o) {
  const auto number = [&](const char* option, int64_t& value, const char* help) {
    command.add_option(option, value, help).show_default();
  };
  command.add_option("--batchers NAMES", o.batchers, "for batchers: names of batchers, separated by commas")
      .separated_by_commas()
      .show_default();
  command.add_option("--model VALUES", o.model, "for batchers: values of the model, written as in an override")
      .show_default();
  command.add_flag("--quick", o.quick,
                   "a tiny model and few tokens or pairs: takes a few seconds, and the times mean nothing");
  number("--max-tokens N", o.options.max_tokens, "for batchers: target tokens of a sub-batch");
  number("--ranks N", o.options.ranks, "for batchers: sub-batches of a step, timed one after the other on all threads");
  number("--pairs N", o.options.pairs, "for batchers: generated pairs, with the lengths of news text in subwords");
  number("--repeats N", o.options.repeats,
         "for batchers: number of measurements of each sub-batch; the fastest counts");
}

}  // namespace lmx_cli
