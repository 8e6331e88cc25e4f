// What this batcher promises beyond what `lmx plugins check` asks of every batcher.
#include <gtest/gtest.h>

#include <numeric>

#include "lmx/batcher.h"
#include "lmx/plugin.h"

namespace {

// Over the tokens 0, 1, 2, ...
std::unique_ptr<lmx::Batcher> make(const std::string& yaml, int64_t tokens, int64_t global_batch) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  const lmx::Node config = lmx::parse_yaml(yaml, "test");
  const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::batcher, config, "batcher");
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  const lmx::BatcherEnv env{lmx::TokenArray::of(std::move(ids)), global_batch, lmx::RandomKey(1), lmx::Allocator::cpu(), "train"};
  return lmx::create<lmx::BatcherFactory>(plugin, config, "batcher", env);
}

TEST(@Name@, ReadsItsPartInOrder) {
  const auto batcher = make("{name: @name@, sequence_length: 5}", 101, 2);
  EXPECT_EQ(batcher->steps_per_epoch(), 10);
  for (int64_t step = 0; step < 10; ++step) {
    const lmx::Batch batch = batcher->batch(step, 0, 2);
    EXPECT_EQ(batch.inputs.data<int32_t>()[0], 5 * step);
    EXPECT_EQ(batch.inputs.data<int32_t>()[5], 50 + 5 * step);  // the second sequence has the second half
    EXPECT_EQ(batch.fresh, std::vector<uint8_t>(2, step == 0));
  }
}

TEST(@Name@, TooLittleTextIsRefused) {
  EXPECT_THROW(make("{name: @name@, sequence_length: 60}", 101, 2), lmx::UserError);
}

}  // namespace
