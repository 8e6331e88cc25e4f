// Values that are rounded to f16 with a scale. Its fields have names that no codec of lmx uses. The field `fault`
// breaks one promise.
#include <cmath>
#include <stdexcept>

#include "lmx/codec.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct Config {
  double shrink = 1;
  int64_t fault = 0;
  void fields(Fields& f) {
    f.field("shrink", shrink, "values are divided by it before they are rounded", {0, 1e6, true});
    f.field("fault", fault, "the promise that is broken; 0: none", kNonNegative);
  }
};

class TestCodec final : public VectorCodec {
 public:
  explicit TestCodec(const Config& c) : c_(c) {}
  int64_t bytes(int64_t n) const override {
    if (c_.fault == 1) return 2 * n + 4;
    return c_.fault == 2 && n == 6 ? 1000 : 2 * n + (n > 0 ? 4 : 0);
  }
  void encode(Context&, const Tensor& values, Tensor encoded) const override {
    if (c_.fault == 9) throw std::out_of_range("a codec without its map");
    const auto v = values.values<float>();
    float largest = 0;
    for (const float x : v) largest = std::abs(x) > largest || std::isnan(x) ? std::abs(x) : largest;
    if (c_.fault == 8 && !std::isfinite(largest)) largest = 0;
    auto* scale = reinterpret_cast<float*>(encoded.data<uint8_t>());
    auto* codes = reinterpret_cast<float16*>(encoded.data<uint8_t>() + 4);
    *scale = largest;
    const int64_t n = values.numel() - (c_.fault == 3 && values.numel() > 1 ? 1 : 0);
    for (int64_t i = 0; i < n; ++i) {
      const float x = v[static_cast<size_t>(i)];
      const float part = c_.fault == 7 ? x * x / largest / largest : largest > 0 ? x / largest : 0;
      codes[i] = static_cast<float16>(part / static_cast<float>(c_.shrink));
    }
  }
  void decode(Context&, const Tensor& encoded, Tensor values) const override {
    const auto* scale = reinterpret_cast<const float*>(encoded.data<uint8_t>());
    const auto* codes = reinterpret_cast<const float16*>(encoded.data<uint8_t>() + 4);
    auto v = values.values<float>();
    for (size_t i = c_.fault == 4 ? 1 : 0; i < v.size(); ++i) {
      v[i] = *scale * static_cast<float>(codes[i]) * static_cast<float>(c_.shrink);
      if (c_.fault == 5) v[i] *= -1;
      if (c_.fault == 6) v[i] += 1e-6f;
    }
  }
  double feedback() const override { return c_.fault == 10 ? 1.5 : 0; }

 private:
  Config c_;
};

}  // namespace

LMX_PLUGIN(codec, test_codec, Config, TestCodec)
