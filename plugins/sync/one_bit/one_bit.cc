// 1-bit SGD (Seide et al. 2014): the sum of all gradients, encoded with one bit for each entry. Both the parts that are
// sent to their owner and the sums that are gathered are encoded, with error feedback on both.
#include "lmx/plugin.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct OneBitConfig {
  double bucket_mb = 150;
  CodecConfig codec{.kind = "one_bit"};
  void fields(Fields& f) {
    f.field("bucket_mb", bucket_mb,
            "megabytes, as sent, of dense gradients that share one message; 0: one message for each gradient",
            kNonNegative);
    f.group("codec", codec, "encoding of gradients for the exchange");
  }
  void check(const std::string& where) const {
    codec.check(where);
    if (codec.kind != "one_bit")
      throw UserError(str(where, ".codec.kind: strategy one_bit writes one bit an entry, not ", codec.kind,
                          "; for that codec choose strategy allreduce"));
  }
};

std::unique_ptr<SyncRule> make_one_bit(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<OneBitConfig>(config, path);
  return std::make_unique<SumStrategy>(SumConfig{.codec = c.codec, .bucket_mb = c.bucket_mb}, env);
}

}  // namespace

LMX_PLUGIN(sync, one_bit, OneBitConfig, make_one_bit)
