// Every integer of a recipe may have any value: the recipe is refused, or its sizes are computed; nothing crashes,
// hangs or becomes negative.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "patterns.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

struct Recipe {
  const char* name;
  Words overrides;
};
const std::vector<Recipe> kRecipes{
    {"lstm", {}},
    {"mlstm", {"~model", "model={name: mlstm, embedding: 8, cells: 8}"}},
    {"rhn", {"~model", "model={name: rhn, embedding: 8, cells: 8, depth: 2}"}},
    {"transformer",
     {"~model", "model={name: transformer, encoder_layers: 0, decoder_layers: 1, d: 16, ffn: 16, heads: 2}",
      "batcher={name: random_windows, sequence_length: 8}"}},
    {"gpt",
     {"~model", "model={name: gpt, layers: 1, d: 16, ffn: 16, heads: 2, positions: learned, context: 8}",
      "batcher={name: packed_windows, sequence_length: 8}"}},
    {"sampled_rows",
     {"comm={name: virtual, ranks: 2}", "sync={all: {params: .*, strategy: sampled_rows}}", "~loss",
      "loss={name: two_stage_softmax}"}},
    {"seeded", {"comm={name: virtual, ranks: 2}", "sync={all: {params: .*, strategy: seeded}}"}},
    {"server", {"comm={name: virtual, ranks: 2}", "sync={all: {params: .*, strategy: param_server}}", "train.ema=0"}},
};
const Words kLargest{"9223372036854775807"};
const Words kFew{"65536", kLargest[0]};
const Words kMany{"-1", "0", "1", "65536", "1048576", "16777216", "2147483647", "4000000000", "9007199254740992"};

// The integers, and the lists of integers, of a JSON schema.
void keys_of(const json& schema, const std::string& path, std::vector<std::pair<std::string, bool>>& keys) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, part] : properties.items()) {
    const std::string key = path.empty() ? name : path + "." + name;
    const std::string type = part.value("type", "");
    if (type == "integer") keys.emplace_back(key, false);
    if (type == "array" && part.value("items", json::object()).value("type", "") == "integer")
      keys.emplace_back(key, true);
    keys_of(part, key, keys);
  }
}

class ExtremeValues : public RunTest, public testing::WithParamInterface<size_t> {
 protected:
  void try_values(const std::function<Words(const std::string&)>& values_of) const {
    const Recipe& recipe = kRecipes[GetParam()];
    Words words{"config", path("tiny.yaml"), "--schema", "--json"};
    words.insert(words.end(), recipe.overrides.begin(), recipe.overrides.end());
    const Outcome schema = run_lmx(words, environment());
    ASSERT_EQ(schema.code, 0) << schema.err;
    std::vector<std::pair<std::string, bool>> keys;
    keys_of(json::parse(schema.out), "", keys);
    EXPECT_GT(keys.size(), 25u);
    const Outcome unchanged = dry_run(recipe, "++seed=2");
    ASSERT_EQ(unchanged.code, 0) << recipe.name << ": " << unchanged.err;
    for (const auto& [key, list] : keys)
      // The text itself would have to be made: that takes longer the larger it is.
      if (!key.starts_with("data."))
        for (const std::string& value : values_of(key))
          try_value(recipe, "++" + key + "=" + (list ? "[" + value + "]" : value));
  }

 private:
  Outcome dry_run(const Recipe& recipe, const std::string& word) const {
    Words words{"timeout", "60", build_path("/bin/lmx"), "run", path("tiny.yaml"), "--dry-run"};
    words.insert(words.end(), recipe.overrides.begin(), recipe.overrides.end());
    words.push_back(word);
    return run_process(words, environment());
  }
  void try_value(const Recipe& recipe, const std::string& word) const {
    const Outcome o = dry_run(recipe, word);
    EXPECT_TRUE(o.code == 0 || o.code == 2) << recipe.name << " " << word << ": " << o.code << "\n" << o.err;
    EXPECT_THAT(o.err, testing::Not(testing::HasSubstr("[internal]"))) << word;
    EXPECT_TRUE(first_match(o.out, "(^|[ (])-[0-9]").empty()) << word << "\n" << o.out;
  }
};

// A key of which the first recipe computes the same is tried there only. A step of a larger batch or of longer
// sequences has more kernels to count; CountedDevice.RefusesMillionsOfKernels shows what ends that.
TEST_P(ExtremeValues, AreRefusedOrCounted) {
  const Words lengths{"batch.global", "batcher.sequence_length", "train.eval_batch"};
  const Words& overrides = kRecipes[GetParam()].overrides;
  try_values([&](const std::string& key) -> Words {
    if (std::ranges::find(lengths, key) != lengths.end()) return kLargest;
    if (overrides.empty()) return kFew;
    const std::string section = key.substr(0, key.find('.')) + "=";
    return std::ranges::any_of(overrides, [&](const auto& o) { return o.starts_with(section); }) ? kFew : Words{};
  });
}
TEST_P(ExtremeValues, OfAllSizesAreRefusedOrCounted) {
  try_values([](const std::string&) {
    Words all = kMany;
    all.push_back(kLargest[0]);
    return all;
  });
}
INSTANTIATE_TEST_SUITE_P(Recipes, ExtremeValues, testing::Range(size_t{0}, kRecipes.size()),
                         [](const auto& i) { return std::string(kRecipes[i.param].name); });

}  // namespace
}  // namespace lmx_test
