// Plugins whose fields have names that no component of lmx uses. Dry run, run, resume, evaluation and sweep ask a
// component for what they need, so they must work with any names.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const std::string kNamePlugins = build_path("/tests/plugins");

class OwnNames : public RunTest {
 protected:
  OwnNames() {
    write("tiny.yaml",
          "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 0}\n"
          "batcher: {name: spans, span: 9}\nbatch: {global: 8}\n"
          "model: {name: composed_decoder, layers: 1, d: 16, ffn: 24}\nloss: {name: full_softmax}\n"
          "optimizer: {name: adam, lr: 0.01}\ntrain: {steps: 6, eval_every: 3}\nthreads: 1\n");
  }
  std::vector<std::string> with_plugins(std::vector<std::string> words) const {
    for (const char* folder : {"/own_names", "/own_names_pairs", "/composed"}) {
      words.emplace_back("--plugin-dir");
      words.push_back(kNamePlugins + folder);
    }
    return words;
  }
  Outcome train(const std::string& dir, const std::vector<std::string>& more = {}) const {
    return run_process(with_plugins(command(dir, more)), environment());
  }
  double last_validation(const std::string& dir) const {
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    double nll = 0;
    for (std::string line; std::getline(lines, line);)
      if (const Json record = Json::parse(line); record["split"] == "valid") nll = record["nll_nat"];
    return nll;
  }
  Outcome lmx(std::vector<std::string> words) const {
    words.insert(words.begin(), build_path("/bin/lmx"));
    return run_process(with_plugins(words), environment());
  }
};

TEST_F(OwnNames, DryRunKnowsTheBatch) {
  const Outcome spans = train("a", {"--dry-run"});
  EXPECT_EQ(spans.code, 0) << spans.err;
  EXPECT_THAT(spans.out, HasSubstr("batch 8 sequences = 72 tokens, vocabulary 60\n"));
  EXPECT_THAT(train("a", {"--dry-run", "batcher.span=11"}).out, HasSubstr("batch 8 sequences = 88 tokens"));
}

TEST_F(OwnNames, DryRunKnowsTheBudgetOfSubBatches) {
  write("pairs.yaml",
        "data: {name: parallel, corpus: multi30k, vocab_size: 4000}\nbatcher: {name: bundles, room: 80}\n"
        "batch: {global: 4}\nmodel: {name: transformer, d: 16, heads: 2, ffn: 32}\n"
        "loss: {name: full_softmax}\noptimizer: {name: adam, lr: 0.001}\ntrain: {steps: 2}\n");
  const Outcome pairs = lmx({"run", path("pairs.yaml"), "--dry-run"});
  EXPECT_THAT(pairs.out, Names("4 sub-batches", "320 target tokens")) << pairs.err;
}

TEST_F(OwnNames, TrainsResumesAndEvaluates) {
  ASSERT_EQ(train("whole").code, 0);
  ASSERT_EQ(train("parts", {"--until", "3"}).code, 0);
  ASSERT_EQ(train("parts", {"--resume", path("parts")}).code, 0);
  EXPECT_EQ(model("whole", 6), model("parts", 6));
  // Positions see the earlier tokens of their window only, so that windows of another length would give another loss.
  const Outcome own = lmx({"eval", path("whole"), "--json"});
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_DOUBLE_EQ(Json::parse(own.out)["nll_nat"].get<double>(), last_validation("whole"));
}

TEST_F(OwnNames, IsSwept) {
  const Outcome sweep = lmx({"sweep", path("tiny.yaml"), "--out", path("sweep"), "batcher.span=5,9", "train.steps=2"});
  EXPECT_EQ(sweep.code, 0) << sweep.err;
  EXPECT_THAT(read_file(folder_ / "sweep/table.csv"), Names("batcher.span", "9"));
}

}  // namespace
}  // namespace lmx_test
