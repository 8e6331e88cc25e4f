// One bit for each value: its sign, times the root of the mean square of the values, so that encoded values have the
// same Euclidean norm. This is the compression of 1-bit Adam (Tang et al. 2021; compressed_allreduce() of the authors'
// program, DeepSpeed). A value of 0 is sent as negative.
#include "lmx/codec.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct SignConfig {
  int64_t block = 0;
  double feedback = 1;
  void fields(Fields& f) {
    f.field("block", block, "successive values with a size of their own; 0: all values that one rank sums",
            kNonNegative);
    f.field("feedback", feedback, "part of the quantisation error that is added to the values of the next exchange",
            kFraction);
  }
};

class SignCodec final : public VectorCodec {
 public:
  explicit SignCodec(const SignConfig& config)
      : coder_{.levels = {-1, 1}, .block = config.block, .scale = LevelScale::mean_square},
        feedback_(config.feedback) {}
  int64_t bytes(int64_t n) const override { return level_bytes(coder_, n); }
  void encode(Context& ctx, const Tensor& values, Tensor encoded) const override {
    encode_levels(ctx, coder_, values, encoded);
  }
  void decode(Context& ctx, const Tensor& encoded, Tensor values) const override {
    decode_levels(ctx, coder_, encoded, values);
  }
  double feedback() const override { return feedback_; }

 private:
  LevelCoder coder_;
  double feedback_;
};

std::unique_ptr<VectorCodec> make_sign(const Node& config, const std::string& path) {
  return std::make_unique<SignCodec>(read_config<SignConfig>(config, path));
}

}  // namespace

LMX_PLUGIN(codec, sign, SignConfig, make_sign)
