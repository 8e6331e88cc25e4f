// The sum of every gradient over ranks: dense gradients in buckets, in the order in which backward finishes them;
// row-sparse gradients over the rows of any rank. In one level, or in two: inside nodes and between them.
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct AllreduceConfig {
  double bucket_mb = 150;  // Ott 2018, section 4.4
  int64_t levels = 1;
  CodecConfig codec;
  void fields(Fields& f) {
    f.field("bucket_mb", bucket_mb,
            "megabytes, as sent, of dense gradients that share one message; 0: one message for each gradient",
            kNonNegative);
    f.field(
        "levels", levels,
        "2: sums are made inside each node and then between nodes, so that fewer bytes cross nodes; a codec encodes "
        "only these",
        {1, 2});
    f.group("codec", codec, "encoding of gradients for the exchange");
  }
  void check(const std::string& where) const {
    codec.check(where);
    if (levels == 2 && codec.feedback())
      throw UserError(str(where, ".levels: the residuals of ", codec.kind,
                          " belong to one rank's gradients, and two levels encode the "
                          "sums of nodes; give levels: 1, or codec none, fp16 or bf16"));
  }
};

std::unique_ptr<SyncRule> make_allreduce(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<AllreduceConfig>(config, path);
  if (c.levels == 2 && env.ranks_per_node == 0)
    throw UserError(str("[", path,
                        "] levels: 2 needs the same number of ranks in every node, and here nodes have different "
                        "numbers; start as many ranks on each host, give comm.ranks_per_node a divisor of ",
                        env.ranks, ", or give levels: 1"));
  return std::make_unique<SumStrategy>(
      SumConfig{.codec = c.codec, .bucket_mb = c.bucket_mb, .levels = static_cast<int>(c.levels)}, env);
}

}  // namespace

LMX_PLUGIN(sync, allreduce, AllreduceConfig, make_allreduce)
