// Tests of the properties that only this codec has; `lmx plugins check` tests those of every codec.
#include <gtest/gtest.h>

#include "lmx/codec.h"
#include "lmx/plugin.h"

namespace {

std::unique_ptr<lmx::VectorCodec> make(const std::string& yaml) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  const lmx::Node config = lmx::parse_yaml(yaml, "test");
  const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::codec, config, "codec");
  return lmx::create<lmx::CodecFactory>(plugin, config, "codec");
}

TEST(@Name@, EachBlockHasAScaleOfItsOwn) {
  const auto codec = make("{name: @name@, block: 2}");
  EXPECT_EQ(codec->bytes(4), 2 * 4 + 4);
  lmx::Context ctx;
  const std::vector<float> values{127, 3, 0.001f, -0.002f};
  lmx::Tensor encoded = ctx.empty({codec->bytes(4)}, lmx::DType::u8), decoded = ctx.empty({4});
  codec->encode(ctx, lmx::Tensor::from<float>(ctx.host, {4}, values), encoded);
  codec->decode(ctx, encoded, decoded);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(decoded.values<float>()[i], values[i], i < 2 ? 1e-4 : 1e-5);
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(make("{name: @name@, block: 0}"), lmx::UserError);
}

}  // namespace
