// Characters and bytes: what becomes a token, from which files, what is left out, and what is wrong with the input.
#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "app/datasets/open.h"
#include "app/prepare/prepare.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "fixture.h"
#include "lmx/batcher.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Units : public lmx_test::DataTest {
 protected:
  std::string quoted(const std::string& name) const { return "'" + path(name) + "'"; }
  Dataset open(const std::string& files, const std::string& more) const {
    return open_dataset(text_data(files, "valid_fraction: 0\n" + more));
  }
  std::string bytes_of(const TokenArray& tokens) const {
    std::string text;
    for (const int32_t id : tokens.tokens()) text.push_back(static_cast<char>(id));
    return text;
  }
  std::string chars_of(const Dataset& d) const {
    std::string text;
    for (const int32_t id : d.train.tokens()) text += id == Vocabulary::kEos ? "\n" : d.vocabulary.word(id);
    return text;
  }
};

TEST_F(Units, BytesAreTheirOwnIds) {
  write("a.txt", "aB\xC3\xA9\n\nlast\xFF");
  const Dataset d = open(quoted("a.txt"), "tokens: bytes");
  EXPECT_EQ(bytes_of(d.train), "aB\xC3\xA9\n\nlast\xFF\n");
  EXPECT_EQ(d.unit, "byte");
  EXPECT_EQ(d.vocabulary.size(), 256);
  EXPECT_TRUE(d.vocabulary.of_bytes());
  EXPECT_EQ(d.vocabulary.word(0x0A), "<0x0A>");
  EXPECT_EQ(d.vocabulary.count(0x0A), 3);
  EXPECT_EQ(d.vocabulary.count('a'), 2);
  EXPECT_EQ(d.train_bytes, d.train.size());
  ASSERT_EQ(d.train_strings.size(), 3);
  EXPECT_EQ(d.train_strings.at(2).begin, 6);
  EXPECT_EQ(d.train_strings.at(2).length, 6);
  EXPECT_THAT(d.report, Names("the 256 bytes", "3 strings, 9 bytes"));
}

TEST_F(Units, StatisticsTakeThemToo) {
  write("a.txt", "abcab\nca\n");
  EXPECT_EQ(open_all_types(text_data(quoted("a.txt"), "valid_fraction: 0\ntokens: bytes")).types, 3);
  EXPECT_EQ(open_all_types(text_data(quoted("a.txt"), "valid_fraction: 0\ntokens: chars\nvocab_size: 9")).train.size(),
            7);
}

TEST_F(Units, MostFrequentCharactersAndOneUnknown) {
  write("a.txt", "Abba\nb\xC3\xA9 b\n");
  const Dataset d = open(quoted("a.txt"), "tokens: chars\nvocab_size: 4");
  EXPECT_EQ(d.unit, "char");
  EXPECT_EQ(d.vocabulary.word(2), "b");
  EXPECT_EQ(d.vocabulary.count(2), 4);
  EXPECT_EQ(d.vocabulary.word(3), " ");  // ties by bytes: ' ' before 'A', 'a' and an e with its accent
  EXPECT_EQ(chars_of(d), "<unk>bb<unk>\nb<unk> b\n");
  EXPECT_EQ(d.vocabulary.count(Vocabulary::kUnk), 3);
  EXPECT_EQ(d.vocabulary.count(Vocabulary::kEos), 2);
  EXPECT_EQ(d.train_bytes, 11);
  EXPECT_EQ(d.train_strings.size(), 2);
  EXPECT_THAT(user_error([&] { open(quoted("a.txt"), "tokens: chars\nvocab_size: 90"); }),
              Names("vocab_size 90", "5 distinct characters", "at most 7"));
}

TEST_F(Units, LowerCaseOnlyWhereAsked) {
  write("a.txt", "AaA\n");
  EXPECT_EQ(chars_of(open(quoted("a.txt"), "tokens: chars\nvocab_size: 4")), "AaA\n");
  EXPECT_EQ(chars_of(open(quoted("a.txt"), "tokens: chars\nvocab_size: 3\nlower_case: true")), "aaa\n");
  const Node full = full_data_config(text_data(quoted("a.txt"), "tokens: chars\nvocab_size: 4"));
  EXPECT_EQ(full.find("lower_case")->text, "false");
  EXPECT_EQ(full_data_config(text_data(quoted("a.txt"), "vocab_size: 4")).find("lower_case")->text, "true");
}

TEST_F(Units, InvalidUtf8NamesItsPlaceForCharacters) {
  write("a.txt", "good\nso \xE9 bad\n");
  EXPECT_THAT(user_error([&] { open(quoted("a.txt"), "tokens: chars\nvocab_size: 4"); }),
              Names("a.txt:2:", "0xE9", "offset 8", "iconv"));
  write("b.csv", "label,text\n1,\"two\nlines\"\n0,\"a\n\xE9\"\n");
  EXPECT_THAT(user_error([&] { open(quoted("b.csv"), "tokens: chars\nvocab_size: 4\nfield: text"); }),
              Names("b.csv:5:", "0xE9", "offset 30"));
  EXPECT_EQ(bytes_of(open(quoted("b.csv"), "tokens: bytes\nfield: text").train), "two\nlines\na\n\xE9\n");
}

TEST_F(Units, ColumnsOfCsvWithQuotesCommasAndLineEnds) {
  write("a.csv", "label,text\r\n1,\"a, \"\"b\"\"\nc\"\r\n0,plain \"x\"\r\n\r\n1,\n");
  EXPECT_EQ(bytes_of(open(quoted("a.csv"), "tokens: bytes\nfield: text").train), "a, \"b\"\nc\nplain \"x\"\n");
  EXPECT_EQ(bytes_of(open(quoted("a.csv"), "tokens: bytes\nfield: label").train), "1\n0\n1\n");
  EXPECT_THAT(user_error([&] { open(quoted("a.csv"), "tokens: bytes"); }), Names("a.csv", "data.field"));
  EXPECT_THAT(user_error([&] { open(quoted("a.csv"), "tokens: bytes\nfield: txt"); }),
              Names("a.csv", "'txt'", "'text'?", "label, text"));
  write("short.csv", "a,b\n1,2\n3\n");
  EXPECT_THAT(user_error([&] { open(quoted("short.csv"), "tokens: bytes\nfield: b"); }),
              Names("short.csv:3:", "1 field", "'b'", "column 2"));
  write("open.csv", "a,b\n1,2\n3,\"4\n5,6\n");
  EXPECT_THAT(user_error([&] { open(quoted("open.csv"), "tokens: bytes\nfield: b"); }), Names("open.csv:3:"));
}

TEST_F(Units, FieldsOfJsonLines) {
  write("a.jsonl", "{\"n\": 1, \"review\": \"one\\ntwo\"}\n\n{\"review\": \"caf\\u00e9\"}\n");
  EXPECT_EQ(bytes_of(open(quoted("a.jsonl"), "tokens: bytes\nfield: review").train), "one\ntwo\ncaf\xC3\xA9\n");
  EXPECT_THAT(user_error([&] { open(quoted("a.jsonl"), "tokens: bytes\nfield: reviews"); }),
              Names("a.jsonl:1", "'reviews'", "'review'?", "n, review"));
  write("b.jsonl", "{\"n\": 1}\n");
  EXPECT_THAT(user_error([&] { open(quoted("b.jsonl"), "tokens: bytes\nfield: n"); }),
              Names("b.jsonl:1:", "'n'", "number"));
  write("c.jsonl", "[1]\n");
  EXPECT_THAT(user_error([&] { open(quoted("c.jsonl"), "tokens: bytes\nfield: n"); }), Names("c.jsonl:1:", "'[1]'"));
}

TEST_F(Units, FoldersWithFieldsOfSeveralKinds) {
  write("dir/a.csv", "text\nfrom csv\n");
  write_gz("dir/b.jsonl.gz", "{\"text\": \"from json\"}\n");
  write("dir/c.txt", "from text\n");
  write("dir/d.bin", "not read");
  EXPECT_EQ(bytes_of(open(quoted("dir"), "tokens: bytes\nfield: text").train), "from csv\nfrom json\nfrom text\n");
  EXPECT_EQ(bytes_of(open(quoted("dir"), "tokens: bytes").train), "from text\n");
  EXPECT_THAT(user_error([&] { open(quoted("dir/c.txt"), "tokens: bytes\nfield: text"); }),
              Names("'text'", ".csv, .jsonl", ".ndjson", "1 file"));
}

TEST_F(Units, RepeatedStringsAreLeftOutOverAllSplits) {
  write("a.txt", "one\ntwo\none\n\nthree\n\ntwo \n");
  write("v.txt", "new\none\n");
  const Dataset d = open_dataset(
      text_data(quoted("a.txt"), "tokens: bytes\ndeduplicate: true\nvalid_files: [" + quoted("v.txt") + "]"));
  EXPECT_EQ(bytes_of(d.train), "one\ntwo\n\nthree\ntwo \n");
  EXPECT_EQ(bytes_of(d.valid), "new\n");
  EXPECT_THAT(d.report, HasSubstr("left out: 3 strings"));
}

// What two strings are after preprocessing decides, from whatever file they come.
TEST_F(Units, RepeatedStringsOfFieldsAreComparedAsTheyAreTrained) {
  write("a.csv", "label,sentence\n1,good <b>film</b>\n0,good film\n1,\"bad, but\n new\"\n");
  write("b.jsonl", "{\"sentence\": \"good   film\"}\n{\"sentence\": \"bad, but new\"}\n{\"sentence\": \"other\"}\n");
  write("v.csv", "sentence\nnew\n<i>other</i>\n");
  const std::string more =
      "tokens: bytes\npreprocess: puri\nfield: sentence\ndeduplicate: true\nvalid_files: [" + quoted("v.csv") + "]";
  const Dataset d = open_dataset(text_data(quoted("a.csv") + ", " + quoted("b.jsonl"), more));
  EXPECT_EQ(bytes_of(d.train), "\n good film \n bad, but new \n other ");
  EXPECT_EQ(bytes_of(d.valid), "\n new ");
  EXPECT_THAT(d.report, HasSubstr("left out: 4 strings"));
}

// More strings than its buffers hold, against a set in memory, on any number of threads.
TEST_F(Units, DeduplicationEqualsASetAndGoesToTheDisk) {
  const RandomKey key(3);
  std::set<std::string> seen;
  std::string text, wanted;
  for (uint64_t i = 0; i < 300'000; ++i) {
    const std::string line = "s" + std::to_string(key.below(i, 250'000));
    text += line + "\n";
    if (seen.insert(line).second) wanted += line + "\n";
  }
  write("a.txt", text);
  for (const int threads : {1, 3}) {
    PrepareSettings settings{.rules = {false, false, Unit::byte}, .drop_repeated = true};
    settings.threads = threads;
    settings.chunk_bytes = 1 << 18;
    const std::string to = path("out" + std::to_string(threads));
    std::filesystem::create_directories(to);
    const PrepareReport r = prepare(find_sources({path("a.txt")}, Split::train), settings, to);
    EXPECT_TRUE(bytes_of(TokenArray::map(to + "/train.bin")) == wanted);
    EXPECT_EQ(r.repeated, 300'000 - static_cast<int64_t>(seen.size()));
    for (const auto& file : std::filesystem::directory_iterator(to))
      EXPECT_THAT(file.path().filename().string(), testing::Not(HasSubstr("duplicates"))) << "left behind";
  }
}

// A share of the training lines is some of a larger share's; the other splits stay what they are.
TEST_F(Units, ShareOfTheTrainingLines) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i) + "\n";
  write("a.txt", text);
  const auto open_share = [&](const char* share) {
    return open_dataset(
        text_data(quoted("a.txt"), std::string("tokens: bytes\nvalid_fraction: 0.1\ntrain_fraction: ") + share));
  };
  const Dataset all = open_share("1"), half = open_share("0.5"), tenth = open_share("0.1");
  EXPECT_EQ(bytes_of(all.valid), bytes_of(half.valid));
  EXPECT_NEAR(static_cast<double>(half.train_strings.size()), 900, 80);
  EXPECT_NEAR(static_cast<double>(tenth.train_strings.size()), 180, 50);
  const std::string larger = "\n" + bytes_of(half.train);
  std::istringstream lines(bytes_of(tenth.train));
  for (std::string line; std::getline(lines, line);)
    EXPECT_NE(larger.find("\n" + line + "\n"), std::string::npos) << line;
}

// ... and so does the vocabulary: perplexities of shares are comparable.
TEST_F(Units, ShareOfTheTrainingLinesKeepsTheVocabulary) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i % 100) + "\n";
  write("a.txt", text);
  for (const std::string more : {"vocab_size: 60", "tokens: bytes", "tokens: chars\nvocab_size: 12",
                                 "deduplicate: true\ntokens: chars\nvocab_size: 12"}) {
    const auto open_share = [&](const std::string& share) {
      return open_dataset(text_data(quoted("a.txt"), "valid_fraction: 0.1\ntrain_fraction: " + share + "\n" + more));
    };
    const Dataset all = open_share("1"), tenth = open_share("0.1");
    EXPECT_LT(tenth.train.size(), all.train.size() / 4) << more;
    EXPECT_EQ(tenth.types, all.types);
    EXPECT_TRUE(std::ranges::equal(tenth.valid.tokens(), all.valid.tokens())) << more;
    ASSERT_EQ(tenth.vocabulary.size(), all.vocabulary.size());
    for (int32_t id = 0; id < tenth.vocabulary.size(); ++id) {
      EXPECT_EQ(tenth.vocabulary.word(id), all.vocabulary.word(id));
      EXPECT_EQ(tenth.vocabulary.count(id), all.vocabulary.count(id)) << tenth.vocabulary.word(id);
    }
    EXPECT_NE(tenth.hash, all.hash);
  }
  const auto none = [&] {
    open_dataset(text_data(quoted("a.txt"), "valid_fraction: 0.1\ntrain_fraction: 1e-9\nvocab_size: 60"));
  };
  EXPECT_THAT(user_error(none), Names("train split", "0", "data.train_fraction", "1e-09"));
}

TEST_F(Units, SettingsThatDoNotGoTogether) {
  write("a.txt", "a\n");
  EXPECT_THAT(user_error([&] { open(quoted("a.txt"), "tokens: bytes\nvocab_size: 98"); }),
              Names("data.vocab_size", "256 bytes", "98"));
  EXPECT_THAT(user_error([&] { open(quoted("a.txt"), "tokens: bytes\nlower_case: true"); }), Names("data.lower_case"));
  EXPECT_THAT(user_error([&] { open(quoted("a.txt"), "preprocess: puri\nvocab_size: 4"); }),
              Names("puri", "data.tokens", "chars", "bytes"));
}

TEST_F(Units, LabelledCorporaAreText) {
  if (!std::getenv("LMX_DATA_DIR") || !locate(find_corpus("sst2")).problem.empty())
    GTEST_SKIP() << "no corpus sst2 on this machine (LMX_DATA_DIR)";
  const Dataset d = open_dataset(parse_yaml(
      "{name: text, corpus: sst2, tokens: bytes, preprocess: puri, cache_dir: " + path("cache") + "}", "r.yaml"));
  EXPECT_EQ(d.train_strings.size(), 6920);
  EXPECT_EQ(d.valid_strings.size(), 872);
  EXPECT_EQ(d.test_strings.size(), 1821);
  const std::string text = bytes_of(d.train);
  EXPECT_TRUE(text.starts_with("\n ")) << text.substr(0, 40);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6920);
}

// Strings "0 ", "1 ", ... of several lengths, so that every token says where it comes from.
struct Numbered {
  TokenArray tokens;
  TextStrings strings;
};
Numbered numbered(int64_t count) {
  std::vector<int32_t> tokens, lengths;
  for (int32_t i = 0; i < count; ++i) {
    lengths.push_back(1 + i % 13);
    for (int32_t k = 0; k < lengths.back(); ++k) tokens.push_back(i * 16 + k);
  }
  return {TokenArray::of(std::move(tokens)), TextStrings(TokenArray::of(std::move(lengths)))};
}

TEST(StringShards, EachStringOnceInSharesThatAreNearlyEqual) {
  const Numbered text = numbered(1000);
  const StringShards shards(text.tokens, text.strings, 17, RandomKey(5));
  std::vector<int32_t> all;
  for (int64_t s = 0; s < shards.size(); ++s) {
    EXPECT_NEAR(static_cast<double>(shards.length(s)), static_cast<double>(text.tokens.size()) / 17, 13);
    std::vector<int32_t> tokens(static_cast<size_t>(shards.length(s)));
    shards.copy(s, 0, shards.length(s), tokens.data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool begins = tokens[i] % 16 == 0;
      EXPECT_TRUE(begins || tokens[i] == tokens[i - 1] + 1) << "a string is cut";
    }
    // In pieces the same.
    for (int64_t at = 0; at + 7 <= shards.length(s); at += 5) {
      std::vector<int32_t> piece(7);
      shards.copy(s, at, 7, piece.data());
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), tokens.begin() + at));
    }
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  std::vector<int32_t> sorted = all, wanted(text.tokens.tokens().begin(), text.tokens.tokens().end());
  EXPECT_NE(all, wanted) << "nothing was drawn";
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, wanted);
}

TEST(StringShards, AsManyShardsAsStringsAndNoMore) {
  const Numbered text = numbered(6);
  const StringShards shards(text.tokens, text.strings, 6, RandomKey(5));
  for (int64_t s = 0; s < 6; ++s) EXPECT_GE(shards.length(s), 1);
  EXPECT_THAT(user_error([&] { StringShards(text.tokens, text.strings, 7, RandomKey(5), "test"); }),
              Names("7 shards", "test split", "6"));
}

}  // namespace
}  // namespace lmx::app
