// The sum of gradients over ranks in buckets, encoded by the rule's codec, to start from. See lmx/sum_strategy.h for what
// the base does; override reduce_table() for row-sparse gradients.
#include "lmx/plugin.h"
#include "lmx/sum_strategy.h"

// The keys of a rule `{params: ".*", strategy: @name@, ...}` in a recipe's `sync:`.
struct @Name@Config {
  double bucket_mb = 25;
  lmx::CodecConfig codec;
  void fields(lmx::Fields& f) {
    f.field("bucket_mb", bucket_mb, "megabytes, as sent, of dense gradients that share one message", lmx::kNonNegative);
    f.group("codec", codec, "encoding of gradients for the exchange");
  }
  void check(const std::string& where) const { codec.check(where); }
};

class @Name@ : public lmx::SumStrategy {
 public:
  @Name@(const @Name@Config& c, const lmx::SyncEnv& env)
      : SumStrategy(lmx::SumConfig{.codec = c.codec, .bucket_mb = c.bucket_mb}, env) {}
};

LMX_PLUGIN(sync, @name@, @Name@Config, @Name@)
