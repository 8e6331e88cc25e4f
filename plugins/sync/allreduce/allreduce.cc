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
            "megabytes, as they travel, of dense gradients that go as one message; 0: each on its own", kNonNegative);
    f.group("codec", codec, "how gradients are written for the wire");
  }
  void check(const std::string& where) const { codec.check(where); }
};

std::unique_ptr<SyncRule> make_allreduce(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<AllreduceConfig>(config, path);
  return std::make_unique<SumStrategy>(SumConfig{.codec = c.codec, .bucket_mb = c.bucket_mb}, env);
}

}  // namespace

LMX_PLUGIN(sync, allreduce, AllreduceConfig, make_allreduce)
