// The sum of every gradient over ranks: dense gradients in buckets, in the order in which backward finishes them;
// row-sparse gradients over the rows of any rank.
#include "lmx/plugin.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct AllreduceConfig {
  double bucket_mb = 150;  // Ott 2018, section 4.4
  CodecConfig codec;
  void fields(Fields& f) {
    f.field("bucket_mb", bucket_mb,
            "megabytes, as sent, of dense gradients that share one message; 0: one message for each gradient",
            kNonNegative);
    f.group("codec", codec, "encoding of gradients for the exchange");
  }
  void check(const std::string& where) const { codec.check(where); }
};

std::unique_ptr<SyncRule> make_allreduce(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<AllreduceConfig>(config, path);
  return std::make_unique<SumStrategy>(SumConfig{.codec = c.codec, .bucket_mb = c.bucket_mb}, env);
}

}  // namespace

LMX_PLUGIN(sync, allreduce, AllreduceConfig, make_allreduce)
