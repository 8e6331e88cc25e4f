// Runs of a plugin's decoder that consists of public ops and adds a term to the loss: checks, records, ranks, text.
#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kPlugins = build_path("/tests/plugins/composed");

class ComposedRun : public RunTest {
 protected:
  ComposedRun() {
    write("tiny.yaml",
          "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 200, branching: "
          "8, "
          "classes: 6}\n"
          "batcher: {name: random_windows, sequence_length: 6}\nbatch: {global: 8}\n"
          "model: {name: composed_decoder, layers: 1, d: 16, heads: 4, kv_heads: 2, ffn: 24, activation: 0.5}\n"
          "loss: {name: full_softmax}\noptimizer: {name: sgd, lr: 0.5}\nclip: 1.0\n"
          "train: {steps: 12, log_every: 3, eval_every: 12}\nthreads: 1\n");
  }
  Outcome lmx(std::vector<std::string> words) const {
    words.insert(words.end(), {"--plugin-dir", kPlugins});
    return run_lmx(std::move(words), environment());
  }
  Outcome train(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--plugin-dir", kPlugins});
    return run(name, more);
  }
  // The values of `key` in the records of a split.
  std::vector<double> series(const std::string& run, const std::string& split, const std::string& key) const {
    std::istringstream lines(read_file(path(run + "/metrics.jsonl")));
    std::vector<double> all;
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find("\"" + key + "\":");
      if (line.find("\"split\":\"" + split + "\"") != std::string::npos && at != std::string::npos)
        all.push_back(std::stod(line.substr(at + key.size() + 3)));
    }
    return all;
  }
  static void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << i;
  }
};

TEST_F(ComposedRun, PassesItsKindsChecks) {
  const std::string library = kPlugins + "/composed_decoder/composed_decoder.so";
  const Outcome o = run_lmx(
      {"plugins", "check", library, "--config", "{layers: 2, d: 16, heads: 4, kv_heads: 2, ffn: 8}"}, environment());
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("ok    decoding "), HasSubstr("ok    gradients "), HasSubstr(" 0 failed\n")));
}

// A loss term is divided like the likelihood: the gradients of ranks and micro-batches sum to that of one process, and
// they record the same term.
TEST_F(ComposedRun, TermsAreThoseOfOneProcess) {
  ASSERT_EQ(train("one").code, 0);
  const std::vector<double> terms = series("one", "train", "loss/activation");
  ASSERT_EQ(terms.size(), 4u);
  EXPECT_GT(terms[0], 0);
  for (const auto& [name, more] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"ranks", {"--ranks", "2"}}, {"micro", {"batch.micro=2"}}, {"uneven", {"--ranks", "3", "batch.micro=1"}}}) {
    const Outcome o = train(name, more);
    ASSERT_EQ(o.code, 0) << o.err;
    expect_near(series(name, "train", "loss/activation"), terms, 1e-5);
    expect_near(series(name, "train", "nll_nat"), series("one", "train", "nll_nat"), 1e-5);
    expect_near(series(name, "valid", "ppl"), series("one", "valid", "ppl"), 1e-5);
  }
}

// Before the first update both runs have the same likelihood. Then the term reduces the features.
TEST_F(ComposedRun, PerplexityLeavesTermsOut) {
  const std::vector<std::string> each{"train.log_every=1"};
  ASSERT_EQ(train("with", each).code, 0);
  ASSERT_EQ(train("without", {"train.log_every=1", "model.activation=0"}).code, 0);
  const std::vector<double> with = series("with", "train", "nll_nat"), without = series("without", "train", "nll_nat");
  EXPECT_EQ(with.at(0), without.at(0));
  EXPECT_NE(with.at(5), without.at(5));
  EXPECT_NEAR(series("with", "train", "ppl").at(0), std::exp(with[0]), 1e-3);
  EXPECT_EQ(series("without", "train", "loss/activation").at(3), 0);
  EXPECT_TRUE(series("with", "valid", "loss/activation").empty());
}

TEST_F(ComposedRun, AResumedRunRecordsTheSameTerms) {
  const std::vector<std::string> often{"train.log_every=5", "checkpoint.every=1"};
  ASSERT_EQ(train("whole", often).code, 0);
  ASSERT_EQ(train("halves", {"train.log_every=5", "checkpoint.every=1", "--until", "3"}).code, 0);
  ASSERT_EQ(train("halves", {"train.log_every=5", "checkpoint.every=1", "--resume", "auto"}).code, 0);
  EXPECT_EQ(series("halves", "train", "loss/activation"), series("whole", "train", "loss/activation"));
}

TEST_F(ComposedRun, Generates) {
  ASSERT_EQ(train("a").code, 0);
  const Outcome o = lmx({"generate", path("a"), "--tokens", "30"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, lmx({"generate", path("a"), "--tokens", "30"}).out);
  EXPECT_NE(o.out, lmx({"generate", path("a"), "--tokens", "30", "--seed", "2"}).out);
}

}  // namespace
}  // namespace lmx_test
