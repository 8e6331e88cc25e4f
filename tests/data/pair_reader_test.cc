// Parallel text in chunks: what is read does not depend on chunks and threads, and sides out of step are an error.
#include "app/pairs/pair_files.h"

#include <mutex>

#include "fixture.h"
#include "names.h"

namespace lmx_test {
namespace {

using namespace lmx::data;

class PairReaderTest : public DataTest {
 protected:
  PairFiles files(const std::string& source, const std::string& target) const {
    return {find_sources({source}, Split::drawn)[0], find_sources({target}, Split::drawn)[0], {}};
  }
  // number: source|target, one a line, in order.
  static std::string read_all(const std::vector<PairFiles>& files, size_t chunk_bytes, int threads) {
    PairReader reader(files, chunk_bytes, "");
    std::map<int64_t, std::string> lines;
    std::mutex mutex;
    for_each_pair_chunk(reader, threads, [&](PairChunk& chunk, int) {
      for_each_pair(files[chunk.file], chunk, [&](const PairLine& pair) {
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
  const std::vector<PairFiles> one{files(write("a.en", "\xEF\xBB\xBF" + source), path("a.de.gz"))};
  for (const size_t bytes : {1u, 17u, 1000u, 1u << 20})
    for (const int threads : {1, 3}) EXPECT_EQ(read_all(one, bytes, threads), expected) << bytes << " " << threads;
}

TEST_F(PairReaderTest, FilesAreCountedOnAndMayMixWithTsv) {
  std::vector<PairFiles> all{files(write("a.en", "a\nb\n"), write("a.de", "A\nB\n"))};
  PairFiles tsv{find_sources({write("b.tsv", "0.5\tC\tc\n0.1\tD\td\tmore\n")}, Split::drawn)[0], {}, {3, 2}};
  all.push_back(tsv);
  EXPECT_EQ(read_all(all, 100, 1), "0: a|A\n1: b|B\n2: c|C\n3: d|D\n");
}

TEST_F(PairReaderTest, DifferentNumbersOfLinesNameBoth) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "x\n";
  for (const auto& [source, target] :
       {std::pair{lines + "x\n", lines}, {lines, lines + "\n"}, {"x\n" + lines, lines + "a\nb\nc"}}) {
    const std::vector<PairFiles> one{files(write("a.en", source), write("a.de", target))};
    const auto n = std::count(source.begin(), source.end(), '\n'),
               m = std::count(target.begin(), target.end(), '\n') + (target.back() != '\n');
    for (const size_t bytes : {1u, 100u, 1u << 20}) {
      EXPECT_THAT(user_error([&] { read_all(one, bytes, 2); }),
                  Names(lmx::str("a.en has ", n, " lines"), lmx::str("a.de ", m, ";")));
    }
  }
}

TEST_F(PairReaderTest, BadBytesAndColumnsNameTheirLine) {
  const std::vector<PairFiles> bytes{files(write("a.en", "a\nb\nc\n"), write("a.de", "A\nB\nC\xFF\n"))};
  EXPECT_THAT(user_error([&] { read_all(bytes, 2, 2); }), Names("a.de:3:", "0xFF", "offset 5", "UTF-8"));
  const std::vector<PairFiles> columns{
      {find_sources({write("a.tsv", "a\tb\nonly one\n")}, Split::drawn)[0], {}, {1, 2}}};
  EXPECT_THAT(user_error([&] { read_all(columns, 100, 1); }), Names("a.tsv:2", "1"));
}

}  // namespace
}  // namespace lmx_test
