// Filtering parallel text, and keeping the best of scored pairs.
#include <mutex>
#include <random>

#include "app/pairs/pair_files.h"
#include "app/pairs/parallel_text.h"
#include "base/files.h"
#include "fixture.h"

namespace lmx_test {
namespace {

using namespace lmx;

class FilterTest : public DataTest {
 protected:
  lmx::app::PairTextFiles in() const { return {{path("a.en")}, {path("a.de")}, {}, {1, 2}}; }
  lmx::app::PairTextOutput out() const { return {path("b.en"), path("b.de"), ""}; }
  bool leftovers() const {
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().string().find(".tmp-") != std::string::npos) return true;
    return false;
  }
};

TEST_F(FilterTest, EachRuleIsCountedOnceAndInAll) {
  write("a.en", "one two\n\nsame words \na b c\na b c d\nx y z\nx\nlast one here\n");
  write("a.de", "eins zwei\nnichts\n same words\na b\na b\n1 2 3 4 5 6\nx\nletzte Zeile\n");
  const lmx::app::FilterCounts c = lmx::app::filter_pairs(in(), {.max_ratio = 1.5, .max_words = 5}, out());
  EXPECT_EQ(c.read, 8);
  EXPECT_EQ(c.kept, 3);
  EXPECT_THAT(c.dropped, ElementsAre(0, 1, 1, 1, 2));   // the six words offend the ratio, too
  EXPECT_THAT(c.breaking, ElementsAre(0, 1, 1, 2, 2));  // 3 : 2 is not above 1.5
  EXPECT_EQ(read("b.en"), "one two\na b c\nlast one here\n");
  EXPECT_EQ(read("b.de"), "eins zwei\na b\nletzte Zeile\n");
  EXPECT_EQ(lmx::app::filter_pairs(in(), {.max_ratio = 0, .max_words = 0, .drop_copies = false}, out()).kept, 7);
  EXPECT_FALSE(leftovers());
}

TEST_F(FilterTest, TsvAndGzSayTheSameForAnyThreads) {
  std::string tsv, expected;
  for (int i = 0; i < 60'000; ++i) {
    const std::string line = str("w", i, " x y z a longer line of text to fill chunks with"),
                      target = i % 3 ? line + " t" : line;
    tsv += str("0.1\t", line, "\t", target, "\n");
    if (i % 3) expected += str(line, "\t", target, "\n");
  }
  write_gz("a.tsv.gz", tsv);
  const lmx::app::PairTextFiles files{{}, {}, {path("a.tsv.gz")}, {2, 3}};
  for (const int threads : {1, 4}) {
    EXPECT_EQ(lmx::app::filter_pairs(files, {}, {"", "", path("b.tsv")}, threads).kept, 40'000);
    EXPECT_EQ(read("b.tsv"), expected);
  }
  lmx::app::filter_pairs(files, {}, {path("b.en.gz"), path("b.de.gz"), ""}, 2);
  // What was written is read again, and nothing more is dropped.
  const lmx::app::FilterCounts again =
      lmx::app::filter_pairs({{path("b.en.gz")}, {path("b.de.gz")}, {}, {1, 2}}, {}, {"", "", path("c.tsv")});
  EXPECT_EQ(again.read, 40'000);
  EXPECT_EQ(read("c.tsv"), expected);
}

TEST_F(FilterTest, NothingKeptIsAnEmptyFile) {
  write("a.en", "x\n");
  write("a.de", "x\n");
  EXPECT_EQ(lmx::app::filter_pairs(in(), {}, {path("b.en.gz"), path("b.de"), ""}).kept, 0);
  EXPECT_EQ(read("b.de"), "");
  lmx::InputFile gz(path("b.en.gz"), lmx::Content::unpacked);
  char byte;
  EXPECT_EQ(gz.read(&byte, 1), 0u);
}

TEST_F(FilterTest, ErrorsLeaveNothing) {
  write("a.en", "a\nb\xFF\n");
  write("a.de", "A\nB\n");
  write("short.de", "A\n");
  EXPECT_THAT(user_error([&] { lmx::app::filter_pairs(in(), {}, out()); }), Names("a.en:2: byte 0xFF"));
  EXPECT_FALSE(fs::exists(path("b.en")) || leftovers());
  const lmx::app::FilterCounts c = lmx::app::filter_pairs(in(), {.drop_invalid = true}, out());
  EXPECT_EQ(c.dropped[lmx::app::FilterCounts::kInvalid], 1);
  EXPECT_EQ(c.kept, 1);
  EXPECT_THAT(user_error([&] {
                lmx::app::filter_pairs({{path("a.en")}, {path("short.de")}, {}, {1, 2}}, {}, out());
              }),
              Names("a.en has 2 lines"));
  EXPECT_THAT(user_error([&] {
                lmx::app::filter_pairs({{path("a.en")}, {}, {}, {1, 2}}, {}, out());
              }),
              Names("1 source", "0 target"));
  EXPECT_THAT(user_error([&] { lmx::app::filter_pairs({}, {}, out()); }), Names("source", "target", "TSV"));
  EXPECT_THAT(user_error([&] {
                lmx::app::filter_pairs(in(), {}, {path("b"), "", ""});
              }),
              Names("source", "target", "write"));
  EXPECT_THAT(user_error([&] { lmx::app::filter_pairs(in(), {.max_ratio = 0.9}, out()); }), Names("0.9"));
  EXPECT_THROW(lmx::app::filter_pairs(in(), {.drop_invalid = true}, {path("no/b.en"), path("b.de"), ""}), RunError);
  EXPECT_THROW(lmx::app::filter_pairs(in(), {.drop_invalid = true}, {"/dev/full/x", path("b.de"), ""}), RunError);
}

// Against a sort, with many equal scores, negative ones and zeros of both signs.
TEST_F(FilterTest, BestPairsEqualASort) {
  std::mt19937 random(7);
  std::string source, target, scores;
  std::vector<std::pair<double, int>> order;
  const int n = 3000;
  for (int i = 0; i < n; ++i) {
    const double score = i % 10 == 0 ? -0.0 : (static_cast<int>(random() % 2001) - 1000) * (i % 2 ? 1e-3 : 1e3);
    source += str("s", i, "\n");
    target += str("t", i, "\n");
    scores += str(score, "\t", -score, "\n");
    order.emplace_back(-score, i);
  }
  write("a.en", source);
  write("a.de", target);
  write("scores", scores);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const int keep : {1, 2, 299, 1500, n - 1, n, 2 * n}) {
    const lmx::app::TopCounts c = lmx::app::keep_best_pairs(in(), {.keep = keep, .scores = path("scores")}, out());
    EXPECT_EQ(c.read, n);
    EXPECT_EQ(c.kept, std::min(keep, n));
    EXPECT_EQ(c.threshold, -order[static_cast<size_t>(c.kept - 1)].first);
    std::set<int> kept;
    for (int i = 0; i < c.kept; ++i) kept.insert(order[static_cast<size_t>(i)].second);
    std::string expected;
    for (const int i : kept) expected += str("s", i, "\n");
    EXPECT_EQ(read("b.en"), expected) << keep;
  }
  EXPECT_NE(lmx::app::keep_best_pairs(in(), {.keep = 1, .scores = path("scores"), .score_column = 2}, out()).threshold,
            -order[0].first);
}

TEST_F(FilterTest, ScoresThatDoNotFit) {
  write("a.en", "a\nb\nc\n");
  write("a.de", "A\nB\nC\n");
  const auto error = [&](const std::string& scores, int64_t keep = 2) {
    write("scores", scores);
    return user_error([&] { lmx::app::keep_best_pairs(in(), {.keep = keep, .scores = path("scores")}, out()); });
  };
  EXPECT_THAT(error("1\n2\n"), Names("2 scores", "3 pairs"));
  EXPECT_THAT(error("1\n2\n3\n4\n"), Names("4 scores", "3 pairs"));
  EXPECT_THAT(error("1\nx2\n3\n"), Names("scores:2", "'x2'", "-inf"));
  EXPECT_THAT(error("1\n\n3\n"), Names("scores:2"));
  EXPECT_THAT(error("1\nnan\n3\n"), Names("'nan'"));
  EXPECT_THAT(error("1\ninf\n3\n"), Names("'inf'"));
  EXPECT_THAT(error("1\n2\n3\n", 0), Names("at least 1"));
  EXPECT_FALSE(fs::exists(path("b.en")) || leftovers());
}

// What `lmx score` writes for a pair that is too long: below every number, and counted.
TEST_F(FilterTest, PairsWithoutAScoreAreTheWorst) {
  write("a.en", "a\nb\nc\nd\n");
  write("a.de", "A\nB\nC\nD\n");
  write("scores", "-inf\t-inf\t0\n-1.5\t-3\t2\n-inf\t-inf\t0\n-1e308\t-1e308\t1\n");
  lmx::app::TopCounts c = lmx::app::keep_best_pairs(in(), {.keep = 2, .scores = path("scores")}, out());
  EXPECT_EQ(read("b.en"), "b\nd\n");
  EXPECT_EQ(c.threshold, -1e308);
  EXPECT_EQ(std::pair(c.unscored, c.kept_unscored), (std::pair<int64_t, int64_t>(2, 0)));
  c = lmx::app::keep_best_pairs(in(), {.keep = 3, .scores = path("scores")}, out());
  EXPECT_EQ(read("b.en"), "a\nb\nd\n");
  EXPECT_EQ(c.threshold, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(std::pair(c.unscored, c.kept_unscored), (std::pair<int64_t, int64_t>(2, 1)));
}

// Multi30k with planted noise: how much of it the rules find, and how much they take that is none (docs/data.md).
TEST_F(FilterTest, FindsPlantedNoiseInMulti30k) {
  const char* data = std::getenv("LMX_DATA_DIR");
  const std::string folder = data ? std::string(data) + "/multi30k/train." : "";
  if (!fs::exists(folder + "en")) GTEST_SKIP() << "no Multi30k below LMX_DATA_DIR";
  std::vector<std::array<std::string, 2>> pairs;
  std::ifstream source(folder + "en"), target(folder + "de");
  for (std::array<std::string, 2> pair; std::getline(source, pair[0]) && std::getline(target, pair[1]);)
    pairs.push_back(pair);
  // Kinds: 0 none, 1 copy, 2 a wrong pair, 3 half of a side is gone, 4 too long.
  std::array<std::vector<std::string>, 5> planted;
  std::string text[2];
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto [s, t] = pairs[i];
    const size_t kind = i % 20 < 4 ? i % 20 + 1 : 0;
    if (kind == 1) t = s;
    if (kind == 2) t = pairs[(i + 1009) % pairs.size()][1];
    if (kind == 3) t = t.substr(0, t.find(' ', t.size() / 3));
    for (int k = 0; kind == 4 && k < 6; ++k) {
      s += " " + s;
      t += " " + t;
    }
    planted[kind].push_back(s + "\t" + t);
    text[0] += s + "\n";
    text[1] += t + "\n";
  }
  write("a.en", text[0]);
  write("a.de", text[1]);
  const lmx::app::FilterCounts counts = lmx::app::filter_pairs(in(), {}, {"", "", path("b.tsv")});
  std::multiset<std::string> kept;
  std::ifstream result(path("b.tsv"));
  for (std::string line; std::getline(result, line);) kept.insert(line);
  const auto found = [&](size_t kind) {
    int64_t gone = 0;
    for (const std::string& pair : planted[kind]) gone += !kept.contains(pair);
    return static_cast<double>(gone);
  };
  const auto total = [&](size_t kind) { return static_cast<double>(planted[kind].size()); };
  EXPECT_EQ(found(1), total(1));
  EXPECT_EQ(found(4), total(4));
  EXPECT_GT(found(3), 0.95 * total(3));
  EXPECT_LT(found(2), 0.6 * total(2));  // by their lengths alone: rules do not read, which is what scores are for
  EXPECT_LT(found(0), 0.04 * total(0));
  const double offenders = found(1) + found(3) + found(4), noise = offenders + found(2);
  const double precision = noise / static_cast<double>(counts.read - counts.kept);
  EXPECT_GT(precision, 0.85);
  RecordProperty("precision", str(precision));
  std::cout << "precision " << precision << ", recall: copies " << found(1) / total(1) << ", halves "
            << found(3) / total(3) << ", too long " << found(4) / total(4) << ", wrong pairs " << found(2) / total(2)
            << "; true pairs lost " << found(0) / total(0) << "\n";
}

// Parallel text in chunks: what is read does not depend on chunks and threads, and sides out of step are an error.

class PairReaderTest : public DataTest {
 protected:
  lmx::app::PairFiles files(const std::string& source, const std::string& target) const {
    return {lmx::app::find_sources({source}, lmx::app::Split::drawn)[0],
            lmx::app::find_sources({target}, lmx::app::Split::drawn)[0],
            {}};
  }
  // number: source|target, one a line, in order.
  static std::string read_all(const std::vector<lmx::app::PairFiles>& files, size_t chunk_bytes, int threads) {
    lmx::app::PairReader reader(files, chunk_bytes, "");
    std::map<int64_t, std::string> lines;
    std::mutex mutex;
    lmx::app::for_each_pair_chunk(reader, threads, [&](lmx::app::PairChunk& chunk, int) {
      lmx::app::for_each_pair(files[chunk.file], chunk, [&](const lmx::app::PairLine& pair) {
        const std::lock_guard lock(mutex);
        lines[pair.number] = lmx::str(pair.source, "|", pair.target);
      });
    });
    std::string all;
    for (const auto& [number, line] : lines) all += lmx::str(number, ": ", line, "\n");
    return all;
  }
};

TEST_F(PairReaderTest, ReadsTheSamePairsInChunksOfAnySize) {
  std::string source, target, expected;
  for (int i = 0; i < 500; ++i) {
    const std::string s = lmx::str("s", i, std::string(static_cast<size_t>(i * 37 % 91), 'x')),
                      t = i % 7 ? lmx::str("t", i) : "";
    source += s + (i % 3 ? "\n" : "\r\n");
    target += t + (i < 499 ? "\n" : "");
    expected += lmx::str(i, ": ", s, "|", t, "\n");
  }
  write_gz("a.de.gz", target);
  const std::vector<lmx::app::PairFiles> one{files(write("a.en", "\xEF\xBB\xBF" + source), path("a.de.gz"))};
  for (const size_t bytes : {1u, 17u, 1000u, 1u << 20})
    for (const int threads : {1, 3}) EXPECT_EQ(read_all(one, bytes, threads), expected) << bytes << " " << threads;
}

TEST_F(PairReaderTest, FilesAreCountedOnAndMayMixWithTsv) {
  std::vector<lmx::app::PairFiles> all{files(write("a.en", "a\nb\n"), write("a.de", "A\nB\n"))};
  lmx::app::PairFiles tsv{
      lmx::app::find_sources({write("b.tsv", "0.5\tC\tc\n0.1\tD\td\tmore\n")}, lmx::app::Split::drawn)[0], {}, {3, 2}};
  all.push_back(tsv);
  EXPECT_EQ(read_all(all, 100, 1), "0: a|A\n1: b|B\n2: c|C\n3: d|D\n");
}

TEST_F(PairReaderTest, DifferentNumbersOfLinesNameBoth) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "x\n";
  for (const auto& [source, target] :
       {std::pair{lines + "x\n", lines}, {lines, lines + "\n"}, {"x\n" + lines, lines + "a\nb\nc"}}) {
    const std::vector<lmx::app::PairFiles> one{files(write("a.en", source), write("a.de", target))};
    const auto n = std::count(source.begin(), source.end(), '\n'),
               m = std::count(target.begin(), target.end(), '\n') + (target.back() != '\n');
    for (const size_t bytes : {1u, 100u, 1u << 20}) {
      EXPECT_THAT(user_error([&] { read_all(one, bytes, 2); }),
                  Names(lmx::str("a.en has ", n, " lines"), lmx::str("a.de ", m, ";")));
    }
  }
}

TEST_F(PairReaderTest, BadBytesAndColumnsNameTheirLine) {
  const std::vector<lmx::app::PairFiles> bytes{files(write("a.en", "a\nb\nc\n"), write("a.de", "A\nB\nC\xFF\n"))};
  EXPECT_THAT(user_error([&] { read_all(bytes, 2, 2); }), Names("a.de:3:", "0xFF", "offset 5", "UTF-8"));
  const std::vector<lmx::app::PairFiles> columns{
      {lmx::app::find_sources({write("a.tsv", "a\tb\nonly one\n")}, lmx::app::Split::drawn)[0], {}, {1, 2}}};
  EXPECT_THAT(user_error([&] { read_all(columns, 100, 1); }), Names("a.tsv:2", "1"));
}

}  // namespace
}  // namespace lmx_test
