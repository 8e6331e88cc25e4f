// Text to shards: counts, vocabulary, splits, errors, and independence of threads and chunks.
#include "app/prepare/prepare.h"

#include "app/corpora/sources.h"
#include "app/datasets/survey.h"
#include "fixture.h"
#include "lmx/random.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Prepare : public lmx_test::DataTest {
 protected:
  PrepareReport run(const std::vector<std::string>& patterns, const PrepareSettings& settings,
                    const std::string& to = "out") {
    std::filesystem::create_directories(path(to));
    return prepare(find_sources(patterns, Split::drawn), settings, path(to));
  }
  std::string text(const std::string& split, const std::string& from = "out") {
    return words_of(TokenArray::map(path(from + "/" + split + ".bin")), Vocabulary::load(path(from + "/vocab.tsv")));
  }
  // Lines of words with Zipf-like frequencies.
  std::string long_text(int lines) const {
    const RandomKey key(1);
    std::string out;
    uint64_t draw = 0;
    for (int i = 0; i < lines; ++i) {
      for (uint64_t n = key.below(draw++, 12); n > 0; --n) {
        out += "w" + std::to_string(static_cast<int>(1 / (key.uniform(draw++) + 0.001))) + " ";
      }
      out += "\n";
    }
    return out;
  }
};

TEST_F(Prepare, IdsByFallingFrequencyTiesByBytes) {
  write("a.txt", "b a c a\nb a d\n");
  const PrepareReport r = run({path("a.txt")}, {.vocab_size = 5});
  EXPECT_EQ(read("out/vocab.tsv"), "<unk>\t1\n</s>\t2\na\t3\nb\t2\nc\t1\n");
  EXPECT_EQ(text("train"), "b a c a </s> b a <unk> </s>");
  EXPECT_EQ(r.types, 4);
  EXPECT_EQ(r.first_lost, "d");
  EXPECT_EQ(r.first_lost_count, 1);
  EXPECT_EQ(r.splits[0].words, 7);
  EXPECT_EQ(r.splits[0].lines, 2);
  EXPECT_NEAR(r.oov(), 1.0 / 7, 1e-12);
  EXPECT_THAT(r.text(5), AllOf(HasSubstr("5 entries"), HasSubstr("of 4 types"), HasSubstr("coverage 85.71 %"),
                               HasSubstr("OOV 14.29 %"), HasSubstr("first lost word: 'd' (1 times)")));
}

TEST_F(Prepare, AllTypesWithoutEndOfLine) {
  write("a.txt", "b a\n\n   \nc\n");
  const PrepareReport r = run({path("a.txt")}, {.vocab_size = 0, .end_of_line = false});
  EXPECT_EQ(text("train"), "b a c");
  EXPECT_EQ(r.first_lost, "");
  EXPECT_EQ(r.oov(), 0);
}

TEST_F(Prepare, LineEndsBomAndLastLine) {
  write("lf.txt", "One two\nthree\n");
  write("crlf.txt", "One two\r\nthree\r\n");
  write("bom.txt", "\xEF\xBB\xBFOne two\nthree");
  write_gz("packed.txt.gz", "One two\nthree\n");
  for (const char* name : {"lf.txt", "crlf.txt", "bom.txt", "packed.txt.gz"}) {
    run({path(name)}, {.vocab_size = 5}, name + std::string(".out"));
    EXPECT_EQ(text("train", name + std::string(".out")), "one two </s> three </s>") << name;
  }
}

TEST_F(Prepare, WhiteSpaceTextKeepsItsUnknownWords) {
  write("a.txt", "the <unk> N </s> the\n");
  run({path("a.txt")}, {.rules = {.lower_case = false, .whitespace_only = true}, .vocab_size = 4});
  EXPECT_EQ(read("out/vocab.tsv"), "<unk>\t1\n</s>\t2\nthe\t2\nN\t1\n");
  EXPECT_EQ(text("train"), "the <unk> N </s> the </s>");
}

TEST_F(Prepare, SameBytesForEveryThreadCountAndChunkSize) {
  write("a.txt", long_text(3000));
  write("b.txt", long_text(500) + std::string(5000, 'x') + " and no line end");
  const std::vector<std::string> files{path("a.txt"), path("b.txt")};
  PrepareSettings settings{.vocab_size = 50, .valid_fraction = 0.1, .test_fraction = 0.05, .split_seed = 3};
  run(files, settings, "reference");
  for (const int threads : {1, 2, 3, 7}) {
    for (const size_t chunk : {97u, 1000u, 65536u}) {
      settings.threads = threads;
      settings.chunk_bytes = chunk;
      run(files, settings, "other");
      for (const char* name : {"train.bin", "valid.bin", "test.bin", "vocab.tsv"}) {
        EXPECT_TRUE(read(std::string("other/") + name) == read(std::string("reference/") + name))
            << name << " with " << threads << " threads and chunks of " << chunk;
      }
    }
  }
}

TEST_F(Prepare, SplitIsAFractionOfTheLinesAndLosesNone) {
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += "n" + std::to_string(i) + "\n";
  write("a.txt", lines);
  const PrepareReport r =
      run({path("a.txt")},
          {.vocab_size = 0, .end_of_line = false, .valid_fraction = 0.1, .test_fraction = 0.2, .split_seed = 1});
  EXPECT_EQ(r.splits[0].lines + r.splits[1].lines + r.splits[2].lines, 20000);
  EXPECT_NEAR(static_cast<double>(r.splits[1].lines), 2000, 200);
  EXPECT_NEAR(static_cast<double>(r.splits[2].lines), 4000, 300);
  EXPECT_EQ(r.splits[1].unknown, r.splits[1].words);  // every word occurs once, hence never in training
}

TEST_F(Prepare, SplitDependsOnSeedAndNumberOnly) {
  PrepareSettings one{.valid_fraction = 0.5, .split_seed = 1}, two = one;
  two.split_seed = 2;
  int differ = 0;
  for (int64_t line = 0; line < 1000; ++line) {
    EXPECT_EQ(split_of_line(one, Split::drawn, line), split_of_line(one, Split::drawn, line));
    EXPECT_EQ(split_of_line(one, Split::test, line), Split::test);
    differ += split_of_line(one, Split::drawn, line) != split_of_line(two, Split::drawn, line);
  }
  EXPECT_NEAR(differ, 500, 80);
  // A larger fraction keeps the lines that a smaller one drew.
  PrepareSettings small = one;
  small.valid_fraction = 0.1;
  for (int64_t line = 0; line < 1000; ++line) {
    if (split_of_line(small, Split::drawn, line) != Split::valid) continue;
    EXPECT_EQ(split_of_line(one, Split::drawn, line), Split::valid);
  }
}

TEST_F(Prepare, InvalidUtf8NamesFileLineAndByte) {
  write("a.txt", "good\nfine\ncaf\xE9\n");
  EXPECT_THAT(user_error([&] { run({path("a.txt")}, {}); }), Names("a.txt:3:", "0xE9", "offset 13", "iconv -f LATIN1"));
  write("b.txt", std::string("\xEF\xBB\xBF") + "x\n\xFF\n");
  EXPECT_THAT(user_error([&] { run({path("b.txt")}, {.chunk_bytes = 2}); }), Names("b.txt:2:", "0xFF", "offset 5"));
  write("c.txt", std::string("\xFF\xFEh\0i\0", 6));
  EXPECT_THAT(user_error([&] { run({path("c.txt")}, {}); }), Names("iconv -f UTF-16"));
  write_gz("d.txt.gz", "\x80");
  EXPECT_THAT(user_error([&] { run({path("d.txt.gz")}, {}); }), Names("offset 0", "decompressed"));
}

TEST_F(Prepare, TheFirstInvalidByteIsNamedForAnyThreadCount) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += i < 100 ? "fine\n" : "bad\xFF\n";
  write("a.txt", text);
  for (const int threads : {1, 4}) {
    EXPECT_THAT(user_error([&] { run({path("a.txt")}, {.threads = threads, .chunk_bytes = 50}); }),
                Names("a.txt:101:"));
  }
}

TEST_F(Prepare, VocabularyLargerThanTypes) {
  write("a.txt", "one two three\n");
  EXPECT_THAT(user_error([&] { run({path("a.txt")}, {.vocab_size = 6}); }),
              Names("vocab_size 6", "3 distinct", "at most 5"));
  EXPECT_NO_THROW(run({path("a.txt")}, {.vocab_size = 5}));
}

TEST_F(Prepare, TooShortForItsSplits) {
  write("blank.txt", " \n\t\n");
  EXPECT_THAT(user_error([&] { run({path("blank.txt")}, {}); }), Names("holds a word"));
  write("one.txt", "only one line\n");
  EXPECT_THAT(
      user_error([&] { run({path("one.txt")}, {.valid_fraction = 0.01}); }),
      Names("valid split has 0 of the 1 line with words", "whole lines", "fold -s", "data.valid_fraction (now 0.01)"));
}

TEST_F(Prepare, OneHugeLine) {
  std::string line;
  for (int i = 0; i < 200000; ++i) line += "w" + std::to_string(i % 100) + " ";
  write("a.txt", line);
  const PrepareReport r = run({path("a.txt")}, {.vocab_size = 102, .threads = 2, .chunk_bytes = 1000});
  EXPECT_EQ(r.splits[0].words, 200000);
  EXPECT_EQ(r.splits[0].lines, 1);
  EXPECT_EQ(TokenArray::map(path("out/train.bin")).size(), 200001);
}

}  // namespace
}  // namespace lmx::app

// The length of a text that is not prepared, from a sample of it.

namespace lmx_test {
namespace {

class SampledLength : public testing::Test {
 protected:
  // Writes `lines` copies of a line. Returns the path.
  std::string write(const std::string& name, const std::string& line, int64_t lines) const {
    std::ofstream file(folder_.path(name), std::ios::binary);
    for (int64_t i = 0; i < lines; ++i) file << line << "\n";
    return folder_.path(name);
  }
  static double of(const std::string& yaml) {
    const auto tokens = lmx::app::sampled_train_tokens(lmx::parse_yaml(yaml, "data"));
    return tokens ? static_cast<double>(*tokens) : -1;
  }

  const TempFolder folder_;
};

TEST_F(SampledLength, OfTextInItsUnit) {
  // 8 words and </s>; 2.6 MB and 5.2 MB, so that only a part of each is read.
  const std::string a = write("a.txt", "one two three four five six seven eight", 65'000),
                    b = write("b.txt", "one two three four five six seven eight", 130'000);
  const std::string files = "files: ['" + a + "', '" + b + "'], valid_fraction: 0, ";
  EXPECT_NEAR(of("{name: text, " + files + "vocab_size: 100}"), 9.0 * 195'000, 0.01 * 9 * 195'000);
  EXPECT_NEAR(of("{name: text, " + files + "vocab_size: 100, train_fraction: 0.25}"), 9.0 * 195'000 / 4,
              0.05 * 9 * 195'000 / 4);
  EXPECT_NEAR(of("{name: text, tokens: chars, " + files + "vocab_size: 20}"), 40.0 * 195'000, 0.01 * 40 * 195'000);
}

TEST_F(SampledLength, OfPairs) {
  const std::string source = write("a.en", "a short sentence of the source", 60'000),
                    target = write("a.de", "a target sentence of 40 bytes, really...", 60'000);
  const std::string data =
      "name: parallel, source_language: en, target_language: de, vocab_size: 1000, source_files: ['" + source +
      "'], target_files: ['" + target + "']";
  EXPECT_NEAR(of("{" + data + "}"), 60'000 * (41.0 / 4 + 1), 1000);
  EXPECT_NEAR(of("{" + data + ", pairs: [1, 5000]}"), 5000 * (41.0 / 4 + 1), 100);
}

TEST_F(SampledLength, IsNotKnownWithoutPlainFiles) {
  EXPECT_EQ(of("{name: text, files: ['" + folder_.path("none.txt") + "'], vocab_size: 100}"), -1);
  write("a.txt.gz", std::string("\x1f\x8b\x08", 3), 1);
  EXPECT_EQ(of("{name: text, files: ['" + folder_.path("a.txt.gz") + "'], vocab_size: 100}"), -1);
}

}  // namespace
}  // namespace lmx_test
