// Uniqueness (Patwary 2018, section III-A): only the rows of a table that a step uses are exchanged, each once.
#include "lmx/plugin.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct UniqueConfig {
  std::string gather = "unique";
  CodecConfig codec;
  void fields(Fields& f) {
    f.choice(
        "gather", gather, {"unique", "raw"},
        "indices that ranks send to each other: each once, or (raw) as often as they occur, as in the paper's text");
    f.group("codec", codec, "encoding of gradients for the exchange");
  }
  void check(const std::string& where) const { codec.check(where); }
};

std::unique_ptr<SyncRule> make_unique_strategy(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<UniqueConfig>(config, path);
  return std::make_unique<SumStrategy>(SumConfig{.codec = c.codec, .gather = c.gather}, env);
}

}  // namespace

LMX_PLUGIN(sync, unique, UniqueConfig, make_unique_strategy)
