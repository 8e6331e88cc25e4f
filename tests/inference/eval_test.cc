// lmx eval and lmx generate on a tiny run.
#include <gmock/gmock.h>

#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Trained : public RunTest {
 protected:
  void SetUp() override {
    const Outcome o = run("a");
    ASSERT_EQ(o.code, 0) << o.err;
    result_ = o.out;
  }
  Outcome lmx(std::vector<std::string> words) const { return run_lmx(std::move(words), environment()); }
  std::string result_;
};

TEST_F(Trained, EvalAgreesWithTheRun) {
  const Outcome o = lmx({"eval", path("a")});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, Names("checkpoint step-120\n", "valid words 299\n"));
  const std::string line = result_.substr(result_.rfind("valid ppl"));  // with EMA, carried state, full softmax
  EXPECT_THAT(o.out, HasSubstr(line));
}

TEST_F(Trained, SplitsAndCheckpoints) {
  EXPECT_THAT(lmx({"eval", path("a"), "--split", "test"}).out, HasSubstr("test words 199\n"));
  EXPECT_THAT(lmx({"eval", path("a"), "--split", "train"}).out, HasSubstr("train ppl "));
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", "110"}).out, HasSubstr("checkpoint step-110\n"));
  EXPECT_EQ(lmx({"eval", path("a"), "--checkpoint", "best"}).code, 0);
  Outcome o = lmx({"eval", path("a"), "--checkpoint", "7"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("'7'", "110, 120"));
  o = lmx({"eval", path("a"), "--split", "vaild"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("'valid'?"));
  o = lmx({"eval", path("nowhere")});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("run directory"));
}

TEST_F(Trained, GenerateIsReproducible) {
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", path("a"), "--tokens", "30"});
    const Outcome o = lmx(more);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  EXPECT_EQ(text({}), text({}));
  EXPECT_NE(text({}), text({"--seed", "2"}));
  EXPECT_EQ(text({"--temperature", "0"}), text({"--temperature", "0", "--seed", "2"}));
  EXPECT_EQ(text({"--temperature", "0"}), text({"--top-k", "1", "--seed", "5"}));
  EXPECT_EQ(text({"--seed", "3", "--top-k", "5"}).find("<unk>"), std::string::npos);
}

TEST_F(Trained, GenerateNeedsTheRunAlone) {
  fs::rename(path("a"), path("moved"));
  const std::string word = [&] {
    std::istringstream lines(read_file(path("moved/vocabulary.tsv")));
    std::string line;
    for (int i = 0; i < 4; ++i) std::getline(lines, line);
    return line.substr(0, line.find('\t'));
  }();
  Outcome o = lmx({"generate", path("moved"), "--prompt", word, "--tokens", "1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.substr(0, word.size()), word);
  o = lmx({"generate", path("moved"), "--prompt", "never-seen", "--tokens", "1"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, Names("'never-seen'"));
}

TEST_F(Trained, GenerateRefuses) {
  const auto refused = [&](std::vector<std::string> more, const NamesMatcher& facts) {
    more.insert(more.begin(), {"generate", path("a")});
    const Outcome o = lmx(more);
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, facts);
  };
  refused({"--tokens", "0"}, Names("at least 1"));
  refused({"--temperature", "-1"}, Names(">= 0"));
  refused({"--temperature", "nan"}, Names(">= 0"));
  refused({"--top-k", "-3"}, Names(">= 0"));
  refused({"--prompt", "\xff"}, Names("UTF-8"));
  refused({"--checkpoint", "9"}, Names("'9'"));
}

}  // namespace
}  // namespace lmx_test
