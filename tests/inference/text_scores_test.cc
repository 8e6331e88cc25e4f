// lmx eval, lmx generate and lmx score for language models.
#include <cmath>

#include "process/run_fixture.h"
#include "process/terminal_process.h"
#include "process/text_fixtures.h"

namespace lmx_test {
namespace {

class AnyText : public RunTest {
 protected:
  // Makes a run with train.txt as training text and valid.txt as validation text.
  void train(const std::string& tokens, int eval_batch = 3) {
    const Words words{"the", "old", "man", "saw", "a", "dog", "and", "sea"};
    std::string text;
    for (size_t i = 0; i < 900; ++i)
      text += words[(i * i / 3 + i / 7) % 8] + (i % 9 == 8 ? std::string("\n") : std::string(" "));
    write("train.txt", text);
    write("valid.txt", text.substr(text.size() / 2, 700) + " an unseen wörd\n");
    const std::string size = tokens == "words" ? "10" : tokens == "chars" ? "15" : "256";
    write("tiny.yaml", "data: {name: text, tokens: " + tokens + ", files: ['" + path("train.txt") +
                           "'], valid_files: ['" + path("valid.txt") + "'], vocab_size: " + size + "}\n" +
                           "batcher: {name: tbptt, sequence_length: 8}\nbatch: {global: 4}\n" +
                           "model: {name: lstm, embedding: 8, cells: 12}\nloss: {name: full_softmax}\n" +
                           "optimizer: {name: adam, lr: 0.01}\ntrain: {steps: 20, eval_batch: " +
                           std::to_string(eval_batch) + "}\nthreads: 1\n");
    ASSERT_THAT(run("a"), Succeeds());
  }
  static double value(const std::string& text, const std::string& key) {
    const size_t at = text.find(key + " ");
    if (at == std::string::npos) ADD_FAILURE() << "no " << key << " in " << text;
    return at == std::string::npos ? NAN : std::stod(text.substr(at + key.size()));
  }
  // mean, sum and tokens of each line.
  static std::vector<std::vector<double>> rows(const std::string& out) {
    std::vector<std::vector<double>> all;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      all.emplace_back();
      for (std::string field; std::getline(fields, field, '\t');) all.back().push_back(std::stod(field));
    }
    return all;
  }
};

// The text of the validation split has the same likelihood, although the run's data no longer exists.
TEST_F(AnyText, EqualsTheSplitThatItWas) {
  for (const std::string tokens : {"words", "chars", "bytes"}) {
    fs::remove_all(path("a"));
    train(tokens);
    const Outcome split = lmx({"eval", path("a")});
    ASSERT_THAT(split, Succeeds());
    fs::remove(path("train.txt"));
    const Outcome text = lmx({"eval", path("a"), "--text", path("valid.txt")});
    ASSERT_THAT(text, Succeeds());
    EXPECT_EQ(value(text.out, "text nll_nat"), value(split.out, "valid nll_nat")) << tokens;
    EXPECT_EQ(value(text.out, "text ppl"), value(split.out, "valid ppl")) << tokens;
    if (tokens == "bytes") {
      EXPECT_EQ(value(text.out, "text compression_ratio"), value(split.out, "valid compression_ratio"));
    }
    if (tokens == "words") {
      EXPECT_EQ(value(text.out, "text unknown"), 3);  // an, unseen, wörd
      EXPECT_THAT(text.err, Names("'unseen' 1"));
    }
  }
}

// Each line is scored independently of the batches.
TEST_F(AnyText, LinesAreScoredOneByOne) {
  train("words");
  write("lines.txt", "the old man\n\nsaw a dog and the sea and the old old man\nzebra\n");
  const Outcome o = lmx({"score", path("a"), path("lines.txt")});
  ASSERT_THAT(o, Succeeds());
  const auto all = rows(o.out);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0][2], 4);  // three words and the end of the line
  EXPECT_EQ(all[1][2], 1);
  EXPECT_EQ(all[2][2], 12);
  double sum = 0;
  for (const auto& row : all) {
    EXPECT_NEAR(row[0] * row[2], row[1], 1e-4);
    sum += row[1];
  }
  EXPECT_NEAR(value(o.err, "log-likelihood"), sum, 1e-4);
  EXPECT_NEAR(value(o.err, "ppl"), std::exp(-sum / 19), 0.01);
  EXPECT_THAT(o.err, Names("4 lines", "19 words (1 unknown)", "'zebra'"));
  EXPECT_EQ(lmx({"score", path("a"), path("lines.txt"), "--batch", "1"}).out, o.out);
}

// A line longer than a piece has the likelihood of its tokens in sequence.
TEST_F(AnyText, LongLinesCarryTheirState) {
  train("bytes", 1);
  std::string text;
  for (int i = 0; i < 130; ++i) text += "the old m\xE9n ";  // no UTF-8: bytes may be anything
  write("long.txt", text + "\n");
  write("both.txt", text + "\nshort\n");
  const auto alone = rows(lmx({"score", path("a"), path("long.txt")}).out);
  const auto beside = rows(lmx({"score", path("a"), path("both.txt")}).out);
  ASSERT_EQ(beside.size(), 2u);
  EXPECT_EQ(alone[0][2], static_cast<double>(text.size()) + 1);
  EXPECT_NEAR(alone[0][1], beside[0][1], 1e-3 * std::abs(alone[0][1]));
  // The same as one stretch of lmx eval, which predicts every byte except the first line end.
  write("eval.txt", "\n" + text + "\n");
  const Outcome eval = lmx({"eval", path("a"), "--text", path("eval.txt")});
  ASSERT_THAT(eval, Succeeds());
  EXPECT_EQ(value(eval.out, "text bytes"), alone[0][2]);
  EXPECT_NEAR(value(eval.out, "text nll_nat") * alone[0][2], -alone[0][1], 1e-4 * std::abs(alone[0][1]));
  const Outcome cut = lmx({"score", path("a"), path("both.txt"), "--max-length", "20"});
  EXPECT_THAT(cut.out, testing::StartsWith("-inf\t-inf\t0\n"));
  EXPECT_THAT(cut.err, Names("1 lines", "20 tokens"));
}

TEST_F(AnyText, Mistakes) {
  train("words");
  const auto refused = [&](const Words& words, const Words& parts) {
    const Outcome o = lmx(words);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_EQ(o.out, "");
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
  };
  refused({"eval", path("a"), "--text", path("nowhere.txt")}, {"nowhere.txt"});
  refused({"eval", path("a"), "--text", path("valid.txt"), "--split", "test"}, {"--split", "--text"});
  refused({"eval", path("a"), "--split", "test"}, {"no test split", "--text", "data.test_fraction"});
  write("bad.txt", "ok\nb\xff\n");
  refused({"eval", path("a"), "--text", path("bad.txt")}, {"bad.txt:2", "UTF-8"});
  refused({"score", path("a"), path("bad.txt"), "--output", path("scores.txt")}, {"bad.txt:2", "UTF-8"});
  write("records.jsonl", "{\"text\": \"the sea\"}\n");
  refused({"eval", path("a"), "--text", path("records.jsonl")}, {"records.jsonl is a file of records", "--field"});
  refused({"eval", path("a"), "--text", path("valid.txt"), "--field", "text"}, {"the field 'text'", "none is among"});
  refused({"eval", path("a"), "--shards", "2"}, {"shards are of chars or of bytes", "words"});
  refused({"eval", path("a"), "--seed", "2"}, {"--seed", "without --shards"});
  refused({"eval", path("a"), "--no-bleu"}, {"--no-bleu", "does not translate"});
  refused({"score", path("a"), path("valid.txt"), "--columns", "2", "1"}, {"--columns", "without --tsv"});
  refused({"score", path("a")}, {"[score]", "--tsv"});
  refused({"score", path("a"), path("valid.txt"), path("valid.txt")}, {"not translate", "lmx score RUN FILE"});
}

// lmx eval and lmx generate on a tiny run.

class Trained : public RunTest {
 protected:
  void SetUp() override {
    const Outcome o = run("a");
    ASSERT_THAT(o, Succeeds());
    result_ = o.out;
  }
  std::string result_;
};

TEST_F(Trained, EvalAgreesWithTheRun) {
  const Outcome o = lmx({"eval", path("a")});
  ASSERT_THAT(o, Prints("checkpoint step-120\n", "valid words 299\n"));
  const std::string line = result_.substr(result_.rfind("valid ppl"));  // with EMA, carried state, full softmax
  EXPECT_THAT(o.out, HasSubstr(line));
}

TEST_F(Trained, SplitsAndCheckpoints) {
  EXPECT_THAT(lmx({"eval", path("a"), "--split", "test"}).out, HasSubstr("test words 199\n"));
  EXPECT_THAT(lmx({"eval", path("a"), "--split", "train"}).out, HasSubstr("train ppl "));
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", "110"}).out, HasSubstr("checkpoint step-110\n"));
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", "best"}), Succeeds());
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", "7"}), Refuses("'7'", "110, 120"));
  EXPECT_THAT(lmx({"eval", path("a"), "--split", "vaild"}), Refuses("'valid'?"));
  EXPECT_THAT(lmx({"eval", path("nowhere")}), Refuses("run directory"));
}

TEST_F(Trained, GenerateIsReproducible) {
  const auto text = [&](const Words& more) {
    const Outcome o = lmx(joined({"generate", path("a"), "--tokens", "30"}, more));
    EXPECT_THAT(o, Succeeds());
    return o.out;
  };
  EXPECT_EQ(text({}), text({}));
  EXPECT_NE(text({}), text({"--seed", "2"}));
  EXPECT_EQ(text({"--temperature", "0"}), text({"--temperature", "0", "--seed", "2"}));
  EXPECT_EQ(text({"--temperature", "0"}), text({"--top-k", "1", "--seed", "5"}));
  EXPECT_EQ(text({"--seed", "3", "--top-k", "5"}).find("<unk>"), std::string::npos);
}

TEST_F(Trained, GenerateSeparatesSamples) {
  const auto text = [&](const char* samples) {
    return lmx({"generate", path("a"), "--tokens", "9", "--samples", samples}).out;
  };
  const std::string one = text("1"), two = text("2"), three = text("3");
  EXPECT_THAT(two, testing::StartsWith(one + "---\n"));
  EXPECT_THAT(three, testing::StartsWith(two + "---\n"));
}

// It would take days, so the signal comes while the text grows.
TEST_F(Trained, ATerminalShowsTheTextWhileItGrows) {
  const Words words{"generate", path("a"), "--tokens"};
  const Outcome o = lmx(joined(words, {"300"}));
  ASSERT_THAT(o, Succeeds());
  const auto lines = [](std::string text) {
    std::erase(text, '\r');
    return text;
  };
  const size_t half = o.out.size() / 2;
  const auto [code, text] = run_on_terminal(joined(words, {"1000000000"}), environment(), 80,
                                            [&](const std::string& shown) { return lines(shown).size() > half; });
  EXPECT_EQ(code, 143) << text;
  EXPECT_EQ(lines(text).substr(0, half), o.out.substr(0, half));
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
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(o.out.substr(0, word.size()), word);
  o = lmx({"generate", path("moved"), "--prompt", "never-seen", "--tokens", "1"});
  EXPECT_THAT(o, Warns("'never-seen'"));
}

TEST_F(Trained, GenerateRefuses) {
  const auto refused = [&](const Words& more, const NamesMatcher& facts) {
    EXPECT_THAT(lmx(joined({"generate", path("a")}, more)), Refuses(facts));
  };
  refused({"--tokens", "0"}, Names("at least 1"));
  refused({"--tokens", "1000000001"}, Names("at most 1000000000"));
  refused({"--samples", "0"}, Names("samples", "at least 1"));
  refused({"--samples", "10001"}, Names("samples", "at most 10000"));
  refused({"--samples", "2", "--temperature", "0"}, Names("temperature 0", "same text"));
  refused({"--temperature", "-1"}, Names(">= 0"));
  refused({"--temperature", "nan"}, Names("--temperature", "nan"));
  refused({"--top-k", "-3"}, Names(">= 0"));
  refused({"--prompt", "\xff"}, Names("UTF-8"));
  refused({"--checkpoint", "9"}, Names("'9'"));
}

// Texts that a run of characters reads: characters that are lost are reported once, and errors in files of texts name
// their lines.

class TextsTest : public LettersTest {
 protected:
  void SetUp() override { train("a", "abcdefghijklmnopqrst"); }
};

// One line for all texts; the most frequent characters come first.
TEST_F(TextsTest, WhatTextsHaveBesideItIsToldOnce) {
  std::string texts = "sentence\n";
  for (int i = 0; i < 30; ++i) texts += i < 20 ? "abXc\n" : i < 29 ? "YdeX\n" : "!()*+-/0\n";
  write("texts.csv", texts);
  const auto features = [&] {
    return lmx({"features", path("a"), path("texts.csv"), "--no-labels", "--out", path("f.csv")});
  };
  const Outcome o = features();
  EXPECT_THAT(o,
              Warns("[features]", "46 of 124 characters", "<unk>", "10 different", "'X' 29, 'Y' 9, '!' 1,", ", ...\n"));
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  write("texts.csv", "sentence\nabXc\n");
  EXPECT_THAT(features().err, Names("[features]", "'X'", "<unk>"));
}

// Puri's preprocessing removes invalid bytes from data and texts, and counts them.
TEST_F(TextsTest, WhatTheCleanerLeavesOutIsTold) {
  std::string csv = "label,sentence\n";
  for (int i = 0; i < 300; ++i)
    csv += std::string(i % 2 ? "1," : "0,") + (i < 7 ? "a caf\xE9 film\n" : "a fine film\n");
  write("r.csv", csv);
  const Words words{"data={name: text, tokens: chars, preprocess: puri, field: sentence, files: ['" + path("r.csv") +
                        "'], vocab_size: 10, valid_fraction: 0.2}",
                    "batcher.sequence_length=4"};
  ASSERT_THAT(run("c", words), Warns("UTF-8", "7 strings"));
  ASSERT_THAT(lmx({"features", path("c"), path("r.csv"), "--out", path("f.csv")}),
              Warns("[features]", "UTF-8", "7 texts"));
}

TEST_F(TextsTest, TextsOfJsonLinesAndInvalidOnes) {
  const auto features = [&](const std::string& file, const Words& more = {}) {
    return lmx(joined({"features", path("a"), path(file), "--out", path("f.csv")}, more));
  };
  write("t.csv", "label,sentence\n1,abc\n0,bcd\n");
  ASSERT_THAT(features("t.csv"), Succeeds());
  const std::string wanted = read_file(path("f.csv"));
  write("t.jsonl", "{\"label\": 1, \"sentence\": \"abc\"}\n\n{\"label\": \"0\", \"sentence\": \"bcd\"}\n");
  ASSERT_THAT(features("t.jsonl"), Succeeds());
  EXPECT_EQ(read_file(path("f.csv")), wanted);
  EXPECT_THAT(features("t.jsonl", {"--text-column", "text"}).err, Names("t.jsonl:1", "'text'"));
  write("none.jsonl", "\n");
  EXPECT_THAT(features("none.jsonl").err, Names("none.jsonl"));
  write("bad.csv",
        "label,sentence\n1,abc\n0,\"b\nc\"\n0,b\xFF"
        "d\n");
  const Outcome bad = features("bad.csv");
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, Names("error: [features] " + path("bad.csv") + ":5 ", "UTF-8", "byte 1"));
}

}  // namespace
}  // namespace lmx_test
