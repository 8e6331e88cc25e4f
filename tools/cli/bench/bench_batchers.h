// `lmx bench batchers`: padding and stragglers of each batcher of parallel text, one JSON line per batcher.
#pragma once

#include <string>
#include <vector>

#include "app/bench/batcher_bench.h"
#include "cli/command_line.h"

namespace lmx_cli {

struct BatchersBench {
  lmx::BatcherBenchOptions options;
  std::string model = "{name: transformer, encoder_layers: 3, decoder_layers: 3, d: 256, ffn: 1024, heads: 4}";
  std::vector<std::string> batchers{"token_budget", "same_shape", "time_balanced"};
  bool quick = false;  // use a tiny model and few pairs instead of `options`
};
void add_batchers_options(Command command, BatchersBench& o);
void bench_batchers(const BatchersBench& o);

}  // namespace lmx_cli
