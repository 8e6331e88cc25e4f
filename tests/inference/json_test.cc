// --json of the commands that print results: valid JSON, with the keys of docs/json.md and all digits.
#include <cmath>

#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

class JsonOutput : public SweepTest {
 protected:
  Json parsed(const Words& words, int code = 0) const {
    const Outcome o = run_lmx(words, environment());
    EXPECT_EQ(o.code, code) << o.err;
    const Json json = Json::parse(o.out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << o.out;
    return json;
  }
  static void expect_keys(const Json& json, const Words& keys) {
    for (const std::string& key : keys) EXPECT_TRUE(json.contains(key)) << key << " in " << json.dump();
  }
};

TEST_F(JsonOutput, Eval) {
  ASSERT_THAT(run("r", {"train.steps=30"}), Succeeds());
  const Json json = parsed({"eval", path("r"), "--json"});
  expect_keys(json, {"run", "checkpoint", "split", "unit", "tokens", "nll_nat", "nll_bit", "ppl", "true_ppl"});
  EXPECT_EQ(json["checkpoint"], "step-30");
  EXPECT_EQ(json["unit"], "word");
  // As many digits as the record of the same validation.
  for (const Json& record : records("r", "valid")) {
    EXPECT_EQ(json["nll_nat"], record["nll_nat"]);
    EXPECT_EQ(json["tokens"], record["tokens"]);
  }
  EXPECT_NEAR(std::log(json["ppl"].get<double>()), json["nll_nat"].get<double>(), 1e-12);
  EXPECT_FALSE(json.contains("bpc"));
}

TEST_F(JsonOutput, Bleu) {
  write("ref", "the cat sat on the mat\na dog runs in the park\n");
  write("hyp", "the cat sat on a mat\na dog runs in the park\n");
  const Json json =
      parsed({"bleu", path("ref"), "--hypothesis", path("hyp"), "--metric", "bleu,multi-bleu,chrf", "--json"});
  EXPECT_EQ(json["sentences"], 2);
  EXPECT_EQ(json["references"], 1);
  ASSERT_EQ(json["scores"].size(), 3u);
  const Json& bleu = json["scores"][0];
  expect_keys(
      bleu, {"metric", "score", "signature", "precisions", "brevity_penalty", "hypothesis_length", "reference_length"});
  ASSERT_EQ(bleu["precisions"].size(), 4u);
  double sum = 0;
  for (const Json& p : bleu["precisions"]) sum += std::log(p.get<double>()) / 4;
  EXPECT_NEAR(bleu["score"].get<double>(), std::exp(sum), 1e-9) << "all digits; the lengths are equal";
  EXPECT_EQ(bleu["hypothesis_length"], 12);
  EXPECT_EQ(json["scores"][1]["metric"], "multi-bleu");
  EXPECT_EQ(json["scores"][2]["metric"], "chrf");
}

TEST_F(JsonOutput, Lists) {
  const Json plugins = parsed({"plugins", "list", "--json"})["plugins"];
  bool lstm = false;
  for (const Json& p : plugins) {
    expect_keys(p, {"kind", "name", "version", "licence", "summary", "path", "built_in"});
    lstm |= p["kind"] == "model" && p["name"] == "lstm";
  }
  EXPECT_TRUE(lstm);
  const Json corpora = parsed({"data", "list", "--json"})["corpora"];
  EXPECT_GT(corpora.size(), 5u);
  for (const Json& corpus : corpora) {
    expect_keys(corpus, {"name", "here", "what", "licence", "source", "searched"});
    EXPECT_TRUE(corpus.contains(corpus["here"].get<bool>() ? "directory" : "get")) << corpus.dump();
  }
}

TEST_F(JsonOutput, Sweeps) {
  const Json plan = parsed(
      {"sweep", path("tiny.yaml"), "optimizer.lr=0.01,1e30", "--seeds", "2", "train.steps=20", "--dry-run", "--json"});
  ASSERT_EQ(plan["points"].size(), 4u);
  expect_keys(plan, {"recipe", "metric", "maximize", "missing_data", "missing_memory", "missing_device"});
  for (const Json& point : plan["points"]) expect_keys(point, {"id", "place", "steps", "parameters", "memory_bytes"});
  EXPECT_EQ(plan["points"][0]["place"]["optimizer.lr"], "0.01");
  EXPECT_EQ(plan["points"][0]["steps"], 20);

  const Json table = parsed({"sweep", path("tiny.yaml"), "--out", path("s"), "optimizer.lr=0.01,0.02", "--seeds", "2",
                             "train.steps=20", "--json"});
  EXPECT_EQ(table["sweep"], path("s"));
  EXPECT_EQ(table["metric"], "valid.ppl");
  ASSERT_EQ(table["configurations"].size(), 2u);
  int best = 0;
  for (const Json& c : table["configurations"]) {
    expect_keys(c, {"place", "values", "outcomes", "best", "mean", "low", "high"});
    EXPECT_EQ(c["outcomes"], Json({"done", "done"}));
    ASSERT_EQ(c["values"].size(), 2u);
    EXPECT_EQ(c["mean"].get<double>(), (c["values"][0].get<double>() + c["values"][1].get<double>()) / 2);
    best += c["best"].get<bool>();
  }
  EXPECT_EQ(best, 1);
  EXPECT_EQ(table["configurations"][0]["values"][0].dump(), value_at_end("s", ids("s")[0])) << "all digits";
}

}  // namespace
}  // namespace lmx_test
