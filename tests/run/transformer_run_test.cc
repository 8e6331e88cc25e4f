// Whole runs of a language model that is a Transformer's decoder: tbptt, windows, every softmax, checkpoints, text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;

class TransformerRun : public RunTest {
 protected:
  void use(const std::string& loss, const std::string& share = "all") const {
    std::string text = kTinyRecipe;
    const auto replace = [&](const std::string& key, const std::string& value) {
      const size_t at = text.find(key + ": {"), end = text.find('\n', at);
      text.replace(at, end - at, key + ": {" + value + "}");
    };
    replace("model",
            "name: transformer, encoder_layers: 0, decoder_layers: 2, d: 16, ffn: 32, heads: 2, share: " + share);
    replace("loss", loss);
    write("tiny.yaml", text);
  }
  // The number after "valid ppl " on the last line that contains it.
  static double perplexity(const std::string& out) {
    const size_t at = out.rfind("valid ppl ");
    return at == std::string::npos ? 0 : std::stod(out.substr(at + 10));
  }
};

// The perplexity of single words is 60; given the previous word it is 8.4 for this source. 120 steps reach 9.8 to 11.
TEST_F(TransformerRun, LearnsUnderEverySoftmax) {
  for (const std::string loss :
       {"name: full_softmax", "name: sampled_softmax, samples: 20", "name: two_stage_softmax"}) {
    for (const char* share : {"all", "none"}) {
      use(loss, share);
      const Outcome o = run("lm");
      ASSERT_EQ(o.code, 0) << loss << o.err;
      EXPECT_GT(perplexity(o.out), 1) << o.out;
      EXPECT_LT(perplexity(o.out), 16) << loss << ' ' << share << '\n' << o.out;
      fs::remove_all(path("lm"));
    }
  }
}

TEST_F(TransformerRun, ResumesAndGenerates) {
  use("name: sampled_softmax, samples: 20");
  ASSERT_EQ(run("whole").code, 0);
  ASSERT_EQ(run("halves", {"train.steps=60"}).code, 0);
  const Outcome o = run("halves", {"--resume", "auto", "train.steps=120"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(model("halves"), model("whole"));
  const Outcome text = run_lmx({"generate", path("whole"), "--tokens", "12"}, environment());
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out, run_lmx({"generate", path("whole"), "--tokens", "12"}, environment()).out);
}

TEST_F(TransformerRun, TakesRandomWindowsAndRanks) {
  use("name: sampled_softmax, samples: 20", "none");
  Outcome o = run("windows", {"batcher={name: random_windows, sequence_length: 6}", "train.steps=20"});
  EXPECT_EQ(o.code, 0) << o.err;
  o = run("ranks", {"--ranks", "2", "train.steps=20"});
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(TransformerRun, ALanguageModelHasNoSource) {
  use("name: full_softmax");
  const Outcome o = run("pairs", {"model.encoder_layers=1"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("transformer", "synthetic", "one language"));
}

}  // namespace
}  // namespace lmx_test
