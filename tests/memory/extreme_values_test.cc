// Every integer of a recipe may have any value: the recipe is refused, or its sizes are computed; nothing crashes,
// hangs for a minute or becomes negative.
#include <algorithm>
#include <functional>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using nlohmann::json;

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
    {"text", {"~data", "data={name: text, files: ['${oc.env:LMX_CACHE_DIR}/source'], vocab_size: 6}"}},
    {"pairs",
     {"~data",
      "data={name: parallel, source_files: ['${oc.env:LMX_CACHE_DIR}/source'], vocab_size: 60, "
      "source_language: en, target_language: de, target_files: ['${oc.env:LMX_CACHE_DIR}/target']}",
      "~model", "model={name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 16, heads: 2}", "~batcher",
      "batcher={name: token_budget, max_tokens: 64}", "~loss", "loss={name: full_softmax}", "~batch",
      "batch={global: 4}", "comm={name: virtual, ranks: 2}"}},
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
  ExtremeValues() {
    std::filesystem::create_directory(path("cache"));
    for (const char* side : {"source", "target"}) {
      std::string text;
      for (int line = 0; line < 400; ++line) text += "one two three " + std::to_string(line % 20) + "\n";
      write(std::string("cache/") + side, text);
    }
  }
  void try_values(const std::function<Words(const std::string&)>& values_of) const {
    const Recipe& recipe = kRecipes[GetParam()];
    Words words{"config", path("tiny.yaml"), "--schema", "--json"};
    words.insert(words.end(), recipe.overrides.begin(), recipe.overrides.end());
    const Outcome schema = run_lmx(words, environment());
    ASSERT_THAT(schema, Succeeds());
    std::vector<std::pair<std::string, bool>> keys;
    keys_of(json::parse(schema.out), "", keys);
    EXPECT_GT(keys.size(), 25u);
    ASSERT_THAT(dry_run(recipe, "++seed=2"), Succeeds()) << recipe.name;
    for (const auto& [key, list] : keys)
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
// sequences has more to count; CountedDevice and TooLargeToCount show what ends that.
TEST_P(ExtremeValues, AreRefusedOrCounted) {
  const Words lengths{"batch.global", "batcher.sequence_length", "batcher.max_tokens", "train.eval_batch"};
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

class TooLargeToCount : public RunTest {
 protected:
  void expect_refused(const Words& overrides, const NamesMatcher& facts) const {
    const Outcome o =
        run_lmx(joined({"run", path("tiny.yaml"), "--dry-run", "batch.micro=0"}, overrides), environment());
    EXPECT_THAT(o, Refuses(facts));
  }
};

TEST_F(TooLargeToCount, NamesTheKey) {
  expect_refused({"batch.global=16777216"}, Names("16777216 times 6 tokens", "reduce batch.global"));
  expect_refused({"train.eval_batch=16777216"}, Names("16777216 times 6 tokens", "reduce train.eval_batch"));
  expect_refused(
      {"~model", "model={name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 16, heads: 2}", "~data",
       "data={name: parallel, source_files: [a], target_files: [b], vocab_size: 60}", "~loss", "~batcher",
       "batcher={name: token_budget, max_tokens: 8388608}", "~batch", "batch={global: 1}", "loss={name: full_softmax}"},
      Names("1 times 8388608 tokens", "reduce batch.global or the tokens of a sub-batch"));
  expect_refused({"data.vocab_size=16777216"}, Names("data.vocab_size", "must be in [4, 10000000]"));
}
TEST_F(TooLargeToCount, RowsOfAllRanks) {
  expect_refused({"comm={name: gloo, ranks: 4096}", "batch.global=16777216", "data.vocab_size=1000000"},
                 Names("exchange too many rows", "reduce batch.global"));
}
INSTANTIATE_TEST_SUITE_P(Recipes, ExtremeValues, testing::Range(size_t{0}, kRecipes.size()),
                         [](const auto& i) { return std::string(kRecipes[i.param].name); });

}  // namespace
}  // namespace lmx_test
