// Numbers of 8 bits with one scale for each block of values, to start from. See lmx/codec.h for what each function
// promises, and lmx/vectors.h for functions that run on the CPU and on CUDA.
#include "lmx/codec.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

// The keys of `codec: {kind: @name@, ...}` in a rule of a recipe's `sync:`.
struct @Name@Config {
  int64_t block = 256;
  void fields(lmx::Fields& f) {
    f.field("block", block, "successive values with one scale", lmx::kPositive);
  }
};

class @Name@ : public lmx::VectorCodec {
 public:
  explicit @Name@(const @Name@Config& config) {
    coder_.block = config.block;
    for (int level = -127; level <= 127; ++level) coder_.levels.push_back(static_cast<float>(level) / 127);
  }
  int64_t bytes(int64_t n) const override { return lmx::level_bytes(coder_, n); }
  void encode(lmx::Context& ctx, const lmx::Tensor& values, lmx::Tensor encoded) const override {
    lmx::encode_levels(ctx, coder_, values, encoded);
  }
  void decode(lmx::Context& ctx, const lmx::Tensor& encoded, lmx::Tensor values) const override {
    lmx::decode_levels(ctx, coder_, encoded, values);
  }

 private:
  lmx::LevelCoder coder_;
};

}  // namespace

LMX_PLUGIN(codec, @name@, @Name@Config, @Name@)
