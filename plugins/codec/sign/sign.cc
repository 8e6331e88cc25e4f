// One bit for each value: its sign, times the root of the mean square of the values, so that encoded values have the
// same Euclidean norm. This is the compression of 1-bit Adam (Tang et al. 2021; compressed_allreduce() of the authors'
// program, DeepSpeed). A value of 0 is sent as negative.
#include "lmx/codec.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct SignConfig {
  int64_t block = 0;
  double feedback = 1;
  void fields(Fields& f) {
    f.field("block", block, "successive values with a separate size; 0: all values that one rank sums", kNonNegative);
    f.field("feedback", feedback, "part of the quantisation error that is added to the values of the next exchange",
            kFraction);
  }
};

std::unique_ptr<VectorCodec> make_sign(const Node& config, const std::string& path) {
  const auto c = read_config<SignConfig>(config, path);
  return std::make_unique<LevelCodec>(LevelCoder{.levels = {-1, 1}, .block = c.block, .scale = LevelScale::mean_square},
                                      c.feedback);
}

}  // namespace

LMX_PLUGIN(codec, sign, SignConfig, make_sign)
