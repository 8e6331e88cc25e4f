// Few levels for each block of values: evenly spaced ones; the powers of two of a float with three exponent bits and no
// mantissa (E3M0, the format of streaming DiLoCo, Douillard et al. 2025); or the means of intervals of standard
// deviations (the statistical quantiser of the programs of SparseLoCo and MuLoCo).
#include <cmath>

#include "lmx/codec.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct QuantisedConfig {
  int64_t bits = 8, block = 256;
  std::string levels = "even";
  double range = 6, feedback = 0;
  void fields(Fields& f) {
    f.field("bits", bits, "of each value: 2, 4 or 8", {2, 8});
    f.choice("levels", levels, {"even", "e3m0", "statistical"},
             "multiples of the block's largest value; powers of two of it; or means of intervals around its mean");
    f.field("block", block, "successive values with a separate scale; 0: all values that one rank sums", kNonNegative);
    f.field("range", range, "statistical: standard deviations that all intervals together cover", {0, 100, true});
    f.field("feedback", feedback, "part of the quantisation error that is added to the values of the next exchange",
            kFraction);
  }
  void check(const std::string& where) const {
    if (bits != 2 && bits != 4 && bits != 8) throw UserError(str(where, ".bits: expected 2, 4 or 8, got ", bits));
    if (levels == "e3m0" && bits != 4)
      throw UserError(str(where, ".levels: e3m0 has 4 bits, and bits is ", bits, "; give bits: 4"));
  }
};

LevelCoder coder_of(const QuantisedConfig& c) {
  const bool statistical = c.levels == "statistical";
  LevelCoder coder{.levels = {}, .block = c.block, .scale = statistical ? LevelScale::deviation : LevelScale::largest};
  const int half = 1 << (c.bits - 1);
  for (int i = statistical ? -half : 1 - half; i < half; ++i) {
    const auto level = static_cast<float>(i);
    if (statistical)
      coder.levels.push_back(level * static_cast<float>(c.range) / static_cast<float>(2 * half));
    else if (c.levels == "even")
      coder.levels.push_back(level / static_cast<float>(half - 1));
    else
      coder.levels.push_back(i == 0 ? 0.0f : std::copysign(std::ldexp(1.0f, std::abs(i) - (half - 1)), level));
  }
  return coder;
}

std::unique_ptr<VectorCodec> make_quantised(const Node& config, const std::string& path) {
  const auto c = read_config<QuantisedConfig>(config, path);
  return std::make_unique<LevelCodec>(coder_of(c), c.feedback);
}

}  // namespace

LMX_PLUGIN(codec, quantised, QuantisedConfig, make_quantised)
