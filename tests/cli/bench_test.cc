// Wrong inputs of lmx bench. (docs/performance.md has its measurements; timings are not tested.)
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;

TEST(Bench, RefusesWhatItDoesNotKnow) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"word_lstn"},
       "[bench] unknown workload 'word_lstn' (did you mean 'word_lstm'?); there are word_lstm, "
       "char_mlstm, char_rhn, nmt_transformer, batchers and compose"},
      {{"compose", "--recipe", "nowhere.yaml"}, "nowhere.yaml"},
      {{"--precision", "fp23"},
       "[bench] unknown precision 'fp23' (did you mean 'fp32'?); one of fp32, bf16, fp16, all"},
      {{"--steps", "0"}, "[bench] --steps 0: at least one step is timed"},
      {{"--threads", "-1"}, "[bench] --threads -1 is negative"},
      {{"batchers", "--ranks", "0"}, "[bench] pairs 20000, ranks 0, steps 10"},
      {{"batchers", "--batchers", "token_budgt"}, "did you mean 'token_budget'?"},
      {{"batchers", "--batchers", "tbptt"}, "unknown key batcher.max_tokens"},
      {{"batchers", "--pairs", "100", "--steps", "1"}, "make less than two steps of 8 sub-batches of 1000 tokens"},
      {{"batchers", "--model", "{name: lstm, embedding: 8, cells: 8}"}, "does not translate"},
      {{"batchers", "--model", "{name: rhn, coupled: no, embedding: 8, cells: 8}"}, "does not translate"},
      {{"batchers", "--model", "{name: rhn"}, "--model '{name: rhn': column 1: '{' is never closed by '}'"},
      {{"batchers", "--model", "rhn"}, "--model 'rhn': expected a map"},
  };
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Outcome o = run_lmx(words);
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, HasSubstr(message));
    EXPECT_EQ(o.out, "");
  }
}

TEST(Bench, ARecipeThatIsComposedHasItsLine) {
  const Outcome o = run_lmx({"bench", "compose", "--steps", "2", "--recipe", LMX_SOURCE_DIR "/recipes/ott_wmt.yaml"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["recipe"], "ott_wmt");
  EXPECT_GT(json["values"], 100);
  EXPECT_GE(json["slowest_ms"], json["ms"]);
}

// The whole command in seconds, with its progress lines without a terminal.
TEST(Bench, QuickBatchersTellHowFarTheyAre) {
  const Outcome o = run_lmx({"bench", "batchers", "--quick", "--threads", "1"}, {{"LMX_PROGRESS_S", "0.001"}});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 3);
  EXPECT_THAT(o.err, testing::ContainsRegex("\\[bench\\] token_budget: step 2, sub-batch [0-9] of 4"));
  EXPECT_THAT(o.err, HasSubstr("time_balanced"));
}

// Times are not tested, but counts are.
TEST(Bench, BatchersHaveTheirLines) {
  const Outcome o =
      run_lmx({"bench", "batchers", "--steps", "1", "--repeats", "1", "--max-tokens", "200", "--pairs", "150",
               "--ranks", "2", "--model",
               "{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 8, ffn: 8, heads: 1}", "--threads", "1"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  for (const std::string batcher : {"token_budget", "same_shape", "time_balanced"}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["batcher"], batcher);
    EXPECT_EQ(json["steps"], 1);
    EXPECT_GE(json["padding"], 0.0);
    EXPECT_LT(json["padding"], 0.5);
    EXPECT_GE(json["spread"], 0.0);
    EXPECT_GT(json["sub_batch_s"], 0.0);
    EXPECT_EQ(json["table_entries"] > 0, batcher == "time_balanced");
    EXPECT_NEAR(json["sentences"].get<double>() * json["sub_batches"].get<double>(), 150, 5);
  }
}

TEST(Bench, HelpShowsEachDefault) {
  const Outcome o = run_lmx({"bench", "--help"});
  EXPECT_EQ(o.code, 0);
  for (const char* part :
       {"WORKLOAD=word_lstm ", "--precision P=all ", "--steps N=10 ", "--threads N=0 ", "--trace FILE "})
    EXPECT_THAT(o.out, HasSubstr(part));
}

}  // namespace
}  // namespace lmx_test
