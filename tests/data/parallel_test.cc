// `data: {name: parallel}`: from files to pairs of subwords, and every mistake a recipe can make on the way.
#include "app/pairs/parallel.h"
#include "app/datasets/open.h"
#include "app/text/subwords.h"
#include "data/data_config.h"
#include "data/dataset.h"

#include "base/files.h"
#include "fixture.h"

namespace lmx_test {
namespace {

using namespace lmx;

constexpr int kPairs = 400;

const std::string kFiles = "source_files: [a.en]\ntarget_files: [a.de]\n";

class ParallelTest : public DataTest {
 protected:
  ParallelTest() {
    std::string source, target;
    for (int i = 0; i < kPairs; ++i) {
      source += str("The ", word(i), " sees a ", word(i * 7 + 1), ", and it's ", word(i * 3), ".\n");
      target += str("Der ", word(i), "er sieht einen ", word(i * 7 + 1), "en, und er ist ", word(i * 3), ".\n");
    }
    write("a.en", source);
    write("a.de", target);
  }
  static std::string word(int i) {
    const char* parts[] = {"ba", "ko", "li", "mu", "ter", "gan", "sol"};
    return str(parts[i % 7], parts[i / 7 % 7], parts[i / 49 % 7]);
  }
  Node data(const std::string& more, const std::string& files = kFiles) const {
    std::string yaml =
        "name: parallel\nsource_language: en\ntarget_language: de\ncache_dir: " + path("cache") + "\n" + files + more;
    for (const char* name : {"a.en", "a.de", "b.en", "b.de", "c.tsv", "empty.en", "bpe.model"})
      for (size_t at = 0; (at = yaml.find(name, at)) != std::string::npos; at += path(name).size())
        yaml.replace(at, std::string(name).size(), path(name));
    return parse_yaml(yaml, "recipe.yaml");
  }
  std::string error(const std::string& more, const std::string& files = kFiles) const {
    return user_error([&] { lmx::app::open_dataset(data(more, files)); });
  }
};

TEST_F(ParallelTest, PairsAreTheLinesInOrder) {
  const Dataset d = lmx::app::open_dataset(data("vocab_size: 120\nvalid_fraction: 0.1\ntest_fraction: 0.1\n"));
  EXPECT_EQ(d.train_pairs.size() + d.valid_pairs.size() + d.test_pairs.size(), kPairs);
  EXPECT_GT(d.valid_pairs.size(), 10);
  EXPECT_EQ(d.vocabulary.size(), 120);
  EXPECT_EQ(d.vocabulary.word(0), "<unk>");
  EXPECT_EQ(d.vocabulary.word(1), "</s>");
  EXPECT_EQ(d.unit, "subword");
  EXPECT_EQ(d.oov, 0);
  // The target side is also a text of its own.
  const auto first = d.train_pairs.target(0);
  ASSERT_GT(d.train.size(), static_cast<int64_t>(first.size()));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), d.train.tokens().begin()));
  EXPECT_EQ(first.back(), Vocabulary::kEos);
  // Subwords give back what was written, on both sides, and encode() is what the preparation did.
  std::istringstream source(read("a.en")), target(read("a.de"));
  std::set<std::string> lines;
  for (std::string s, t; std::getline(source, s) && std::getline(target, t);) lines.insert(s + "|" + t);
  for (int64_t i = 0; i < d.train_pairs.size(); ++i) {
    const std::string s = d.codecs.source->decode(d.train_pairs.source(i)),
                      t = d.codecs.target->decode(d.train_pairs.target(i));
    EXPECT_TRUE(lines.contains(s + "|" + t)) << s << "|" << t;
    std::vector<int32_t> ids = d.codecs.source->encode(s);
    ids.push_back(Vocabulary::kEos);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), d.train_pairs.source(i).begin(), d.train_pairs.source(i).end()));
  }
  EXPECT_EQ(d.codecs.source->decode_tokens(d.codecs.source->encode("The ba's a ko, li.")), "The ba 's a ko , li .");
  EXPECT_EQ(d.codecs.source->language() + d.codecs.target->language(), "ende");
  // The counts of the vocabulary are those of the training split.
  int64_t counted = 0, ids = d.train.size();
  for (int64_t i = 0; i < d.train_pairs.size(); ++i) ids += static_cast<int64_t>(d.train_pairs.source(i).size());
  for (int32_t id = 0; id < 120; ++id) counted += d.vocabulary.count(id);
  EXPECT_EQ(counted, ids);
}

TEST_F(ParallelTest, SameForAnyNumberOfThreadsAndPreparedOnce) {
  std::string hashes[2];
  for (const int threads : {1, 5}) {
    fs::remove_all(path("cache"));
    const Dataset d = lmx::app::open_dataset(data(str("vocab_size: 120\nthreads: ", threads, "\n")));
    for (const char* file : {"train.source.bin", "train.target.bin", "valid.source.bin", "subwords.model", "vocab.tsv",
                             "valid.target.txt"})
      hashes[threads == 5] += hash_text(read_file(d.directory + "/" + file));
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  const Dataset again = lmx::app::open_dataset(data("vocab_size: 120\n"));
  EXPECT_EQ(lmx::app::open_dataset(data("vocab_size: 120\nthreads: 2\n")).directory, again.directory);
  EXPECT_NE(lmx::app::open_dataset(data("vocab_size: 121\n")).hash, again.hash);
  EXPECT_NE(lmx::app::open_dataset(data("vocab_size: 120\nlower_case: true\n")).hash, again.hash);
  const lmx::app::DataCheck check = lmx::app::check_dataset(data("vocab_size: 120\n"));
  EXPECT_TRUE(check.findings.empty());
  EXPECT_EQ(check.train_tokens, again.train.size());
  EXPECT_EQ(lmx::app::check_dataset(data("vocab_size: 122\n")).train_tokens, std::nullopt);
}

TEST_F(ParallelTest, DropsAreCounted) {
  write("b.en", "one two three\n\nx y\na b c d e f g h i j\nseven of nine\nlast line here\n");
  write("b.de", "eins zwei drei\nleer\n \t \na b c d e f g h i j k l m\nzwei\nletzte Zeile hier\n");
  const std::string files =
      "source_files: [b.en]\ntarget_files: [b.de]\nvalid_source_files: [a.en]\nvalid_target_files: [a.de]\n";
  const Dataset d = lmx::app::open_dataset(data("vocab_size: 75\nmax_words: 12\nmax_ratio: 2\n", files));
  EXPECT_EQ(d.train_pairs.size(), 2);
  EXPECT_EQ(d.valid_pairs.size(), kPairs);  // limits are for training
  EXPECT_THAT(d.report, Names("train: 2 of 6 pairs", "2 with an empty side", "1 by max_words", "1 by max_ratio"));
  EXPECT_EQ(lmx::app::open_dataset(data("vocab_size: 75\n", files)).train_pairs.size(), 4);
  EXPECT_THAT(error("vocab_size: 75\nmax_words: 1\n", files),
              Names("train split", "6 pairs", "2 with an empty side", "4 too long"));
}

// Six pairs of their own beside the 400 of a.
constexpr const char* kCrawl =
    "parts: {crawl: {source_files: [b.en], target_files: [b.de]}}\nvocab_size: 120\nvalid_fraction: 0.1\n";

TEST_F(ParallelTest, PartsStandBehindTheMainTextWithWhatAnEpochReadsOfThem) {
  write("b.en", "The ko sees a ba.\nThe mu sees a ba.\n\nThe ter sees a ba.\n");
  write("b.de", "Der ko sieht ba.\nDer mu sieht ba.\nleer\nDer ter sieht ba.\n");
  const Dataset plain = lmx::app::open_dataset(data("vocab_size: 120\nvalid_fraction: 0.1\n"));
  const Dataset d = lmx::app::open_dataset(data(str(kCrawl, "ratio: {main: 2, crawl: 0.5}\n")));
  const int64_t main = plain.train_pairs.size();
  ASSERT_EQ(d.train_parts.size(), 2u);
  EXPECT_EQ(d.train_parts[0].name, "main");
  EXPECT_EQ(d.train_parts[0].count, main);  // the crawl is training text alone
  EXPECT_EQ(d.train_parts[0].draws, main);
  EXPECT_EQ(d.train_parts[1].first, main);
  EXPECT_EQ(d.train_parts[1].count, 3);
  EXPECT_EQ(d.train_parts[1].draws, std::llround(static_cast<double>(main) / 4));
  EXPECT_EQ(d.train_pairs.size(), main + 3);
  EXPECT_EQ(d.codecs.target->decode(d.train_pairs.target(main + 1)), "Der mu sieht ba.");
  EXPECT_EQ(d.valid_pairs.size(), plain.valid_pairs.size());
  EXPECT_THAT(d.report, Names("part main:", "part crawl: 3 pairs"));

  // The ratio is no part of what is prepared, but of what a run depends on.
  const Dataset other = lmx::app::open_dataset(data(str(kCrawl, "ratio: {crawl: 7}\nepoch_of: crawl\n")));
  EXPECT_EQ(other.directory, d.directory);
  EXPECT_NE(other.hash, d.hash);
  EXPECT_EQ(other.train_parts[1].draws, 3);
  EXPECT_EQ(other.train_parts[0].draws, 1);  // 3 / 7, at least one
  EXPECT_TRUE(plain.train_parts.empty());
  EXPECT_EQ(lmx::app::check_dataset(data(kCrawl)).train_tokens, d.train.size());
}

TEST_F(ParallelTest, APartMayLeaveSubwordsAloneAndBeCutOrSpoilt) {
  const std::string crawl = "parts: {crawl: {source_files: [b.en], target_files: [b.de], ", size = "vocab_size: 120\n";
  fs::copy(path("a.en"), path("b.en"));
  fs::copy(path("a.de"), path("b.de"));
  const Dataset plain = lmx::app::open_dataset(data(size + "pairs: [1, 300]\nvalid_fraction: 0.1\n"));
  EXPECT_LT(plain.train_pairs.size(), 300);
  EXPECT_EQ(plain.train_pairs.size() + plain.valid_pairs.size(), 300);
  const auto mixed = [&](const std::string& more) {
    return lmx::app::open_dataset(data(size + "pairs: [1, 300]\nvalid_fraction: 0.1\n" + crawl + more + "}}\n"));
  };
  const Dataset d = mixed("subwords: false, pairs: [301, 400]");
  EXPECT_EQ(read_file(d.directory + "/subwords.model"), read_file(plain.directory + "/subwords.model"));
  EXPECT_EQ(d.train_parts[1].count, 100);
  const int64_t first = d.train_parts[1].first;
  EXPECT_EQ(d.codecs.source->decode(d.train_pairs.source(first)),
            str("The ", word(300), " sees a ", word(2101), ", and it's ", word(900), "."));
  // A wrong target is that of the pair before; sources stay.
  const Dataset spoilt = mixed("subwords: false, pairs: [301, 400], wrong_targets: 0.5");
  const auto same = [](std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  int64_t wrong = 0;
  for (int64_t i = first; i < first + 100; ++i) {
    EXPECT_TRUE(same(spoilt.train_pairs.source(i), d.train_pairs.source(i)));
    if (same(spoilt.train_pairs.target(i), d.train_pairs.target(i))) continue;
    ++wrong;
    if (i > first) {
      EXPECT_TRUE(same(spoilt.train_pairs.target(i), d.train_pairs.target(i - 1)));
    }
  }
  EXPECT_GT(wrong, 30);
  EXPECT_LT(wrong, 70);
}

TEST_F(ParallelTest, MistakesInAMixAreNamedWithTheirPlace) {
  write("b.en", "a\n");
  write("b.de", "b\n");
  write("none.en", "\n\n");
  write("none.de", "x\ny\n");
  const auto wrong = [&](const std::string& more, const lmx_test::NamesMatcher& facts) {
    EXPECT_THAT(error(more), AllOf(facts, testing::ContainsRegex("recipe.yaml:[0-9]+:[0-9]+: "))) << more;
  };
  const std::string crawl = kCrawl;
  wrong(crawl + "ratio: {crowl: 2}\n", Names("data.ratio.crowl: ", "'crowl'", "'crawl'?", "main, crawl"));
  wrong(crawl + "ratio: {crawl: 0}\n", Names("data.ratio.crawl: ", "'0'"));
  wrong(crawl + "ratio: {crawl: -1}\n", Names("data.ratio.crawl: ", "'-1'"));
  wrong(crawl + "ratio: {main: much}\n", Names("data.ratio.main: ", "'much'"));
  wrong(crawl + "ratio: 4\n", Names("data.ratio: ", "part: number"));
  wrong(crawl + "epoch_of: wmt\n", Names("data.epoch_of: ", "'wmt'"));
  wrong("vocab_size: 120\nparts: [b.en]\n", Names("data.parts: ", "texts"));
  wrong("vocab_size: 120\nparts: {main: {corpus: multi30k}}\n", Names("data.parts.main: ", "data itself"));
  wrong("vocab_size: 120\nparts: {crawl: {ratio: 2}}\n", Names("data.parts.crawl.ratio"));
  wrong("vocab_size: 120\nparts: {crawl: {}}\n", Names("data.parts.crawl: ", "one of"));
  wrong("vocab_size: 120\nparts: {crawl: {source_files: [b.en]}}\n", Names("target_files is missing"));
  wrong("vocab_size: 120\nparts: {crawl: {source_files: [b.en], target_files: [b.de], pairs: [3, 2]}}\n",
        Names("data.parts.crawl: pairs: ", "[first, last]"));
  wrong("vocab_size: 120\nparts: {crawl: {source_files: [b.en], target_files: [b.de], tokenizer: none}}\n",
        Names("data.parts.crawl: tokenizer none"));
  wrong(str("vocab_size: 120\nparts: {crawl: {source_files: [", path("none.en"), "], target_files: [", path("none.de"),
            "]}}\n"),
        Names("data.parts.crawl: ", "2 pairs"));
}

TEST_F(ParallelTest, EveryMissingCorpusOfAMixIsNamed) {
  const CorporaIn corpora(path("nowhere"));
  const Node missing = parse_yaml(
      "name: parallel\nvocab_size: 120\ncorpus: wmt16_en_de\njoiner: '@@'\nparts:\n  crawl: {corpus: paracrawl}\n  "
      "news: {corpus: "
      "news_commentary}\n  own: {source_files: [none.en], target_files: [none.de]}\n",
      "recipe.yaml");
  EXPECT_THAT(lmx::app::check_dataset(missing).findings,
              testing::ElementsAre(Names("'wmt16_en_de'", "train.tok"), Names("'paracrawl'", "part-*.tsv.gz"),
                                   Names("'news_commentary'"), Names("none.en", "no such file")));
  EXPECT_THAT(user_error([&] { lmx::app::open_dataset(missing); }),
              StartsWith("4 mistakes:\n  [data] corpus 'wmt16_en_de'"));
}

TEST_F(ParallelTest, TsvGzAndTokenizedTextGiveTheSamePairs) {
  const Dataset plain = lmx::app::open_dataset(data("vocab_size: 120\n"));
  std::istringstream source(read("a.en")), target(read("a.de"));
  std::string tsv, tokens[2];
  const lmx::app::LineTokenizer en({.language = "en"}), de({.language = "de"});
  const auto pieces = [](std::string words) {  // as subword-nmt writes them
    for (size_t at = 0; (at = words.find("ter", at)) != std::string::npos; at += 6) words.insert(at + 1, "@@ ");
    return words;
  };
  for (std::string s, t; std::getline(source, s) && std::getline(target, t);) {
    tsv += str("7\t", t, "\t", s, "\n");
    tokens[0] += pieces(en.words(s)) + "\n";
    tokens[1] += pieces(de.words(t)) + "\n";
  }
  write_gz("c.tsv.gz", tsv);
  const Dataset columns = lmx::app::open_dataset(data("vocab_size: 120\ntsv_columns: [3, 2]\n", "files: [c.tsv.gz]\n"));
  const Dataset ready = lmx::app::open_dataset(
      data("vocab_size: 120\ntokenizer: tokenized\njoiner: '@@'\n",
           str("source_files: [", write("t.en", tokens[0]), "]\ntarget_files: [", write("t.de", tokens[1]), "]\n")));
  for (const Dataset* other : {&columns, &ready}) {
    ASSERT_EQ(other->train_pairs.size(), plain.train_pairs.size());
    EXPECT_EQ(words_of(other->train, other->vocabulary), words_of(plain.train, plain.vocabulary));
    EXPECT_NE(other->hash, plain.hash);
  }
  EXPECT_EQ(ready.codecs.source->encode("It's here."), plain.codecs.source->encode("It's here."));
}

TEST_F(ParallelTest, WithoutATokenizerTheTextComesBackAsItIs) {
  const Dataset d = lmx::app::open_dataset(data("vocab_size: 120\ntokenizer: none\n"));
  const std::string line = "The ba ,ko  's \tli.";
  EXPECT_EQ(d.codecs.source->decode(d.codecs.source->encode(line)), "The ba ,ko 's li.");
  EXPECT_EQ(d.codecs.source->decode(d.codecs.source->encode("ba \xE4\xB8\xAD ko")), "ba <unk> ko");
  EXPECT_THAT(user_error([&] { d.codecs.source->encode("a\xFF"); }), Names("UTF-8"));
  EXPECT_TRUE(d.codecs.source->encode("").empty());
  EXPECT_EQ(d.codecs.source->decode({}), "");
}

TEST_F(ParallelTest, AGivenModelIsUsedAndChecked) {
  const Dataset trained = lmx::app::open_dataset(data("vocab_size: 120\n"));
  fs::copy(trained.directory + "/subwords.model", path("bpe.model"));
  const Dataset given = lmx::app::open_dataset(data("vocab_size: 120\nsubword_model: bpe.model\n"));
  EXPECT_NE(given.directory, trained.directory);
  EXPECT_EQ(words_of(given.train, given.vocabulary), words_of(trained.train, trained.vocabulary));
  EXPECT_THAT(error("vocab_size: 100\nsubword_model: bpe.model\n"), Names("120 subwords", "vocab_size", "100"));
  EXPECT_THAT(error("vocab_size: 100\nsubword_model: " + path("none") + "\n"), Names(path("none")));
  EXPECT_THAT(lmx::app::check_dataset(data("vocab_size: 100\nsubword_model: " + path("none") + "\n")).findings,
              testing::ElementsAre(Names(path("none"))));
  write("bpe.model", "no model at all");
  EXPECT_THAT(error("vocab_size: 120\nsubword_model: bpe.model\n"), Names("bpe.model", "damaged"));
}

TEST_F(ParallelTest, CodecsTravelWithARun) {
  const Dataset d = lmx::app::open_dataset(data("vocab_size: 120\nescape: true\n"));
  lmx::app::save_text_codecs(d.codecs, path("run/codecs"));
  fs::remove_all(path("cache"));
  const TextCodecs loaded = lmx::app::load_text_codecs(path("run/codecs"));
  const std::string line = "It's \"ba\" & ko.";
  EXPECT_EQ(loaded.source->encode(line), d.codecs.source->encode(line));
  EXPECT_EQ(loaded.target->language(), "de");
  EXPECT_THAT(loaded.source->decode_tokens(loaded.source->encode("it's")), HasSubstr("&apos;s"));
  EXPECT_EQ(loaded.source->decode(loaded.source->encode("it's")), "it's");
  // Damage and absence.
  write("run/codecs/codecs.json", "{}");
  EXPECT_THAT(user_error([&] { lmx::app::load_text_codecs(path("run/codecs")); }), Names("codecs.json", "damaged"));
  fs::remove(path("run/codecs/subwords.model"));
  EXPECT_THAT(user_error([&] { lmx::app::load_text_codecs(path("run/codecs")); }), Names("subwords.model"));
}

TEST_F(ParallelTest, ReferencesAreTheLinesAsWritten) {
  const std::string source = read("a.en"), target = read("a.de");
  write("b.en", "Two  spaces ,here\t.\nno other side\n" + source);
  write("b.de", "Zwei  Leerzeichen ,hier\t.\n\n" + target);
  const Dataset d = lmx::app::open_dataset(
      data("vocab_size: 120\n",
           "source_files: [a.en]\ntarget_files: [a.de]\ntest_source_files: [b.en]\ntest_target_files: [b.de]\n"));
  EXPECT_EQ(d.test_pairs.size(), kPairs + 1);
  EXPECT_EQ(read_file(d.directory + "/test.source.txt"), "Two  spaces ,here\t.\n" + source);
  EXPECT_EQ(read_file(d.directory + "/test.target.txt"), "Zwei  Leerzeichen ,hier\t.\n" + target);
  std::string decoded;
  for (int64_t i = 1; i <= kPairs; ++i) decoded += d.codecs.source->decode(d.test_pairs.source(i)) + "\n";
  EXPECT_EQ(decoded, source);
}

TEST_F(ParallelTest, SizesThatTheTextDoesNotGive) {
  EXPECT_THAT(error("vocab_size: 10\n"), Names("vocab_size 10", "at least"));
  EXPECT_THAT(error("vocab_size: 90000\n"), Names("vocab_size 90000", "at most"));
}

TEST_F(ParallelTest, MistakesInTheConfig) {
  write("b.de", "x\n");
  EXPECT_THAT(error("vocab_size: 90\n", ""), Names("recipe.yaml:1:1", "`corpus`"));
  // Each message begins with the place of the key, which is in the last line.
  const struct {
    std::string yaml;
    NamesMatcher facts;
  } mistakes[] = {
      {"source_files: [a.en]\n", Names("target_files is missing")},
      {kFiles + "valid_target_files: [a.de]\n", Names("valid_source_files is missing")},
      {"target_files: [a.de, b.de]\nsource_files: [a.en]\n", Names("source_files", "1 files", "target_files 2")},
      {"target_files: [a.en]\nsource_files: [a.en]\n", Names("a.en", "source", "target")},
      {kFiles + "files: [a.en]\n", Names("source_files")},
      {kFiles + "corpus: multi30k\n", Names("`corpus`", "files")},
      {"corpus: gutenberg\n", Names("parallel text", "multi30k")},
      {"corpus: multi3k\n", Names("no corpus 'multi3k'", "did you mean 'multi30k'")},
      {kFiles + "max_ratio: 0.5\n", Names("max_ratio 0.5")},
      {kFiles + "joiner: '@@'\n", Names("tokenizer: tokenized")},
      {kFiles + "tsv_columns: [1]\n", Names("tsv_columns", "1 columns")},
      {kFiles + "pairs: [5, 1]\n", Names("pairs", "[first, last]")},
      {kFiles + "test_fraction: 0.5\nvalid_fraction: 0.5\n", Names("valid_fraction 0.5", "nothing to train on")},
  };
  for (const auto& [yaml, facts] : mistakes) {
    const int64_t line = 5 + std::count(yaml.begin(), yaml.end(), '\n');
    EXPECT_THAT(error("vocab_size: 90\n" + yaml, ""), testing::AllOf(facts, StartsWith(str("recipe.yaml:", line, ":"))))
        << yaml;
  }
  EXPECT_THAT(error("vocab_size: 90\nparts: {crawl: {source_files: [a.en], target_files: [a.de],\n  pairs: [5, 1]}}\n"),
              AllOf(StartsWith("recipe.yaml:9:"), HasSubstr("data.parts.crawl: pairs")));
  EXPECT_THAT(error("vocab_sise: 90\n"), Names("vocab_size"));
  EXPECT_THAT(error(""), Names("vocab_size"));
  EXPECT_THAT(error("vocab_size: 90\n", "source_files: [b.en]\ntarget_files: [a.de]\n"), Names("b.en", "no such file"));
  EXPECT_THAT(user_error([&] {
                lmx::app::open_dataset(parse_yaml("name: parallel\nvocab_size: 90\nsource_files: [" + path("a.en") +
                                                      "]\ntarget_files: [" + path("a.de") + "]\n",
                                                  "r.yaml"));
              }),
              Names("source_language", "target_language"));
  EXPECT_EQ(vocabulary_size(data("vocab_size: 90\n")), 90);
  EXPECT_EQ(full_data_config(data("vocab_size: 90\n")).find("max_words")->text, "0");
  EXPECT_THAT(user_error([&] { lmx::app::open_all_types(data("vocab_size: 90\n")); }), Names("one side"));
}

TEST_F(ParallelTest, DamagedCacheAndBadTextAreOneMessage) {
  const Dataset d = lmx::app::open_dataset(data("vocab_size: 120\n"));
  std::ofstream(d.directory + "/subwords.model", std::ios::app) << "x";
  EXPECT_THAT(error("vocab_size: 120\n"), Names("subwords.model", "damaged"));
  write("b.en", "good\nb\xC3\n");
  write("b.de", "gut\nschlecht\n");
  EXPECT_THAT(error("vocab_size: 20\n", "source_files: [b.en]\ntarget_files: [b.de]\n"), Names("b.en:2", "0xC3"));
  write("b.de", "gut\n");
  EXPECT_THAT(error("vocab_size: 20\n", "source_files: [b.en]\ntarget_files: [b.de]\n"),
              Names("b.en has 2 lines", "b.de 1"));
  for (const auto& entry : fs::directory_iterator(path("cache")))
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos);
}

TEST_F(ParallelTest, EveryDamagedFileNamesTheDirectoryToDelete) {
  const std::string directory = lmx::app::open_dataset(data("vocab_size: 120\n")).directory;
  const std::string name = fs::relative(directory, folder_).string();
  for (const char* file : {"train.source.bin", "train.target.bin", "valid.target.bin", "test.source.bin", "vocab.tsv",
                           "subwords.model", "meta.json"}) {
    const std::string good = read(name + "/" + file);
    write(name + "/" + file, good.substr(0, good.size() / 2));
    EXPECT_THAT(error("vocab_size: 120\n"), Names(directory, "damaged")) << file;
    fs::remove(directory + "/" + file);
    EXPECT_THAT(error("vocab_size: 120\n"), Names(directory)) << file;
    write(name + "/" + file, good);
  }
  EXPECT_NO_THROW(lmx::app::open_dataset(data("vocab_size: 120\n")));
}

TEST_F(ParallelTest, FullDiskIsARunErrorAndLeavesNothing) {
  EXPECT_THAT(error_on_full_disk(3000, [&] { lmx::app::open_dataset(data("vocab_size: 120\n")); }),
              StartsWith("[data] cannot write"));
  for (const auto& entry : fs::directory_iterator(path("cache"))) EXPECT_EQ(entry.path().extension(), ".lock");
  EXPECT_NO_THROW(lmx::app::open_dataset(data("vocab_size: 120\n")));
}

TEST_F(ParallelTest, ProcessesAtOncePrepareOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i)
    children.push_back(start_child(
        [&] { return lmx::app::open_dataset(data("vocab_size: 120\n")).train_pairs.size() > 300 ? 0 : 1; }));
  for (const pid_t child : children) EXPECT_EQ(exit_code_of(child), 0);
  int64_t directories = 0;
  for (const auto& entry : fs::directory_iterator(path("cache"))) directories += entry.is_directory();
  EXPECT_EQ(directories, 1);
}

TEST_F(ParallelTest, ALineOfAHundredThousandWordsIsAPair) {
  std::string line;
  for (int i = 0; i < 100'000; ++i) line += word(i) + " ";
  write("b.en", read("a.en") + line + "\n");
  write("b.de", read("a.de") + line + "\n");
  const Dataset d = lmx::app::open_dataset(
      data("vocab_size: 120\n",
           "source_files: [b.en]\ntarget_files: [b.de]\nvalid_source_files: [a.en]\nvalid_target_files: [a.de]\n"));
  ASSERT_EQ(d.train_pairs.size(), kPairs + 1);
  EXPECT_GT(d.train_pairs.source(kPairs).size(), 100'000u);
  line.pop_back();
  EXPECT_EQ(d.codecs.target->decode(d.train_pairs.target(kPairs)), line);
}

TEST_F(ParallelTest, AMissingCorpusSaysWhatIsMissingAndWhatToDo) {
  const CorporaIn corpora(path("corpora"));
  write("corpora/wmt16-en-de/train.tok.clean.bpe.32000.en", "x\n");
  const std::string message = error("corpus: wmt16_en_de\nvocab_size: 90\n", "");
  EXPECT_THAT(message, Names("newstest2013.tok.bpe.32000.en", "newstest2014.tok.bpe.32000.en",
                             "train.tok.clean.bpe.32000.de", "lmx data fetch wmt16_en_de", path("corpora")));
}

TEST(ParallelCorpus, Multi30kBothWays) {
  const Node data = parse_yaml("name: parallel\ncorpus: multi30k\nvocab_size: 8000\n", "r.yaml");
  if (!lmx::app::check_dataset(data).findings.empty()) GTEST_SKIP() << lmx::app::check_dataset(data).findings[0];
  const ParallelConfig config = read_config<ParallelConfig>(data, "data");
  const auto forth = lmx::app::find_parallel(config, data);
  EXPECT_EQ(forth.source.language + forth.target.language, "ende");
  EXPECT_TRUE(forth.files[2][0].target.path.ends_with("test_2016_flickr.de"));
  ParallelConfig turned = config;
  turned.target_language = "en";
  const auto back = lmx::app::find_parallel(turned, data);
  EXPECT_EQ(back.source.language + back.target.language, "deen");
  turned.source_language = "fr";
  EXPECT_THAT(user_error([&] { lmx::app::find_parallel(turned, data); }), Names("en and de", "'fr'"));
  turned.source_language = "en";
  EXPECT_THAT(user_error([&] { lmx::app::find_parallel(turned, data); }), Names("'en'"));
}

}  // namespace
}  // namespace lmx_test
