// Which files a corpus has, and how they are cut into chunks.
#include "app/corpora/sources.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <mutex>

#include "app/corpora/corpora.h"
#include "app/corpora/zipf.h"
#include "app/datasets/open.h"
#include "base/files.h"
#include "data/dataset.h"
#include "fixture.h"
#include "packed.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Sources : public lmx_test::DataTest {
 protected:
  std::vector<std::string> names(const std::vector<std::string>& patterns) {
    std::vector<std::string> found;
    for (const SourceFile& f : find_sources(patterns, Split::drawn)) {
      found.push_back(std::filesystem::relative(f.path, folder_).string());
    }
    return found;
  }
  // All lines, with the numbers that the reader gives them.
  std::vector<std::pair<int64_t, std::string>> lines(const std::vector<std::string>& patterns, size_t chunk,
                                                     int threads = 1) {
    const auto files = find_sources(patterns, Split::drawn);
    ChunkReader reader(files, chunk, "");
    std::mutex mutex;
    std::vector<std::pair<int64_t, std::string>> all;
    for_each_chunk(reader, threads, [&](Chunk& c, int) {
      const std::lock_guard lock(mutex);
      for_each_line(c.text, [&](std::string_view line, int64_t n) { all.emplace_back(c.first_line + n, line); });
    });
    std::sort(all.begin(), all.end());
    return all;
  }
};

TEST_F(Sources, DirectoriesAndGlobsAreSorted) {
  write("d/b.txt", "b");
  write("d/a.txt", "a");
  write("d/sub/c.text", "c");
  write("d/image.png", "x");
  write("d/.hidden.txt", "x");
  EXPECT_EQ(names({path("d")}), (std::vector<std::string>{"d/a.txt", "d/b.txt", "d/sub/c.text"}));
  EXPECT_EQ(names({path("d/*.txt")}), (std::vector<std::string>{"d/a.txt", "d/b.txt"}));
  EXPECT_EQ(names({path("d/image.png"), path("d/[a]*")}), (std::vector<std::string>{"d/image.png", "d/a.txt"}));
  write("d/odd[1].txt", "x");
  EXPECT_EQ(names({path("d/odd[1].txt")}), (std::vector<std::string>{"d/odd[1].txt"}));
}

TEST_F(Sources, Errors) {
  EXPECT_THAT(user_error([&] { names({path("none.txt")}); }), Names(path("none.txt"), "no such file"));
  EXPECT_THAT(user_error([&] { names({path("*.txt")}); }), Names(path("*.txt")));
  write("d/image.png", "x");
  EXPECT_THAT(user_error([&] { names({path("d")}); }), Names(path("d"), "1 other files"));
  write("d/records.jsonl.gz", "x");
  EXPECT_THAT(user_error([&] { names({path("d")}); }), Names(path("d"), "data.field"));
  write("empty.txt", "");
  EXPECT_THAT(user_error([&] { names({path("empty.txt")}); }), Names("empty.txt is empty"));
  write("a.txt", "a");
  EXPECT_THAT(user_error([&] { names({path("a.txt"), path("a*")}); }), Names(path("a.txt"), "twice"));
  EXPECT_THAT(user_error([&] { names({"relative.txt"}); }),
              Names("relative.txt", std::filesystem::current_path().string()));
  mkfifo(path("pipe").c_str(), 0600);
  EXPECT_THAT(user_error([&] { names({path("pipe")}); }), Names(path("pipe"), "regular file"));
}

TEST_F(Sources, UnreadableFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads every file";
  chmod(write("secret.txt", "x").c_str(), 0);
  EXPECT_THAT(user_error([&] { names({path("secret.txt")}); }), Names(path("secret.txt"), "read"));
}

TEST_F(Sources, LinesKeepTheirNumbersForEveryChunkSize) {
  write("a.txt", "one\ntwo\r\n\nfour");
  write("b.txt",
        "\xEF\xBB\xBF"
        "five\n" +
            std::string(300, 'x') + "\nseven\n");
  const std::vector<std::pair<int64_t, std::string>> expected{
      {0, "one"}, {1, "two"}, {2, ""}, {3, "four"}, {4, "five"}, {5, std::string(300, 'x')}, {6, "seven"}};
  for (const size_t chunk : {1, 2, 3, 4, 5, 7, 16, 100, 299, 300, 301, 4096}) {
    EXPECT_EQ(lines({path("a.txt"), path("b.txt")}, chunk), expected) << chunk;
    EXPECT_EQ(lines({path("a.txt"), path("b.txt")}, chunk, 3), expected) << chunk;
  }
}

// The first bytes decide, not the name. A file may have several members or frames.
TEST_F(Sources, CompressedFilesReadAsTheirText) {
  const std::string head =
                        "\xEF\xBB\xBF"
                        "alpha\nbe",
                    tail = "ta\n" + std::string(300000, 'z') + "\nlast";
  write("plain.txt", head + tail);
  write_gz("1", head);
  write_gz("2", tail);
  write_gz("packed.txt.gz", head + tail);
  write("members.txt", read("1") + read("2"));
  write("padded.txt.gz", read("1") + read("2") + std::string(512, '\0'));
  write("packed.txt.zst", zstd(head + tail));
  write("frames.txt", zstd(head) + zstd("") + zstd(tail));
  const std::string skipped("\x5A\x2A\x4D\x18\x02\0\0\0xx", 10);
  write("skipped.zst", skipped + zstd(head) + skipped + zstd(tail));
  write("plain.txt.gz", head + tail);
  for (const std::string name :
       {"packed.txt.gz", "members.txt", "padded.txt.gz", "packed.txt.zst", "frames.txt", "skipped.zst", "plain.txt.gz"})
    EXPECT_EQ(lines({path(name)}, 64), lines({path("plain.txt")}, 64)) << name;
}

TEST_F(Sources, TextThatBeginsLikeACompressedFileIsText) {
  for (const std::string text : {"(", "(\xB5/", "P*", "P*M", "\x1F", "P", "(a\nb"})
    EXPECT_EQ(read_file(write("a.zst", text), Content::unpacked), text);
}

TEST_F(Sources, DamagedZstd) {
  const std::string packed = zstd("some text\n" + std::string(1000, 'x'));
  for (const size_t n : {size_t{4}, size_t{9}, packed.size() - 1}) {
    write("cut.zst", zstd("a whole frame\n") + packed.substr(0, n));
    EXPECT_THAT(user_error([&] { lines({path("cut.zst")}, 1000); }), Names("cut.zst", "truncated zstd")) << n;
  }
  write("after.zst", packed + "not a frame");
  EXPECT_THAT(user_error([&] { lines({path("after.zst")}, 1000); }), Names("after.zst", "damaged"));
}

TEST_F(Sources, DamagedGzip) {
  std::string text;  // not so regular that the truncated file ends inside its header
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919 % 10007) + (i % 9 ? " " : "\n");
  const std::string packed = write_gz("whole.txt.gz", text);
  std::string bytes = read("whole.txt.gz");
  write("cut.txt.gz", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(user_error([&] { lines({path("cut.txt.gz")}, 1000); }), Names("cut.txt.gz", "truncated"));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  write("flipped.txt.gz", bytes);
  EXPECT_THAT(user_error([&] { lines({path("flipped.txt.gz")}, 1000); }), Names("flipped.txt.gz", "damaged"));
}

TEST_F(Sources, HashesContentNotName) {
  write("a.txt", "same");
  write("b.txt", "same");
  write("c.txt", "other");
  auto files = find_sources({path("a.txt"), path("b.txt"), path("c.txt")}, Split::drawn);
  hash_sources(files);
  EXPECT_EQ(files[0].hash.size(), 32u);
  EXPECT_EQ(files[0].hash, files[1].hash);
  EXPECT_NE(files[0].hash, files[2].hash);
  EXPECT_EQ(files[0].hash, hash_text("same"));
}

TEST_F(Sources, NoticesAFileThatChanges) {
  write("a.txt", "before");
  const auto files = find_sources({path("a.txt")}, Split::drawn);
  EXPECT_NO_THROW(check_unchanged(files));
  write("a.txt", "before and after");
  EXPECT_THROW(check_unchanged(files), RunError);
}

TEST_F(Sources, TheEarliestErrorWinsForAnyThreadCount) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i) + "\n";
  write("a.txt", text);
  const auto files = find_sources({path("a.txt")}, Split::drawn);
  for (const int threads : {1, 2, 5}) {
    ChunkReader reader(files, 16, "");
    const std::string error = user_error([&] {
      for_each_chunk(reader, threads, [](Chunk& c, int) {
        if (c.index >= 7) throw UserError("chunk " + std::to_string(c.index));
      });
    });
    EXPECT_EQ(error, "chunk 7") << threads;
  }
}

TEST_F(Sources, KnownSha256) {
  EXPECT_EQ(sha256_of_file(write("a.txt", "abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace lmx::app

// The fit of U = a N^b and the counting of types.

namespace lmx::app {
namespace {

using namespace lmx_test;

TEST(PowerLaw, ExactData) {
  std::vector<TypesAtTokens> points;
  for (int64_t n = 640; n < 3'000'000; n *= 2) points.push_back({n, 7.5 * std::pow(n, 0.64), 0});
  const PowerLaw fit = fit_power_law(points);
  EXPECT_NEAR(fit.exponent, 0.64, 1e-12);
  EXPECT_NEAR(fit.factor, 7.5, 1e-9);
  EXPECT_NEAR(fit.rms, 0, 1e-12);
  ASSERT_EQ(fit.residuals.size(), points.size());
  EXPECT_NEAR(fit.at(10'240), 7.5 * std::pow(10'240, 0.64), 1e-6);
}

TEST(PowerLaw, LeastSquaresByHand) {
  // In units of ln 1000, ln N = 0, 1, 2 and ln U = 0, 1, 1: slope 1/2, intercept 1/6, residuals -1/6, 1/3, -1/6.
  std::vector<TypesAtTokens> points{{1, 1, 0}, {1000, 1000, 0}, {1000000, 1000, 0}};
  const PowerLaw fit = fit_power_law(points);
  EXPECT_NEAR(fit.exponent, 0.5, 1e-12);
  EXPECT_NEAR(std::log(fit.factor), std::log(1000.0) / 6, 1e-9);
  EXPECT_NEAR(fit.residuals[1], std::log(1000.0) / 3, 1e-9);
  EXPECT_NEAR(fit.rms, std::log(1000.0) * std::sqrt((1.0 / 36 + 1.0 / 9 + 1.0 / 36) / 3), 1e-9);
}

TEST(PowerLaw, Errors) {
  EXPECT_THAT(user_error([] { fit_power_law({}); }), Names("two different"));
  const std::vector<TypesAtTokens> one{{10, 5, 0}}, same{{10, 5, 0}, {10, 6, 0}}, zero{{10, 0, 0}, {20, 5, 0}};
  EXPECT_THAT(user_error([&] { fit_power_law(one); }), Names("1 points"));
  EXPECT_THAT(user_error([&] { fit_power_law(same); }), Names("two different"));
  EXPECT_THAT(user_error([&] { fit_power_law(zero); }), Names("0 types", "10 tokens"));
}

TEST(CountTypes, CountsExactlyWhatItDraws) {
  // Each word occurs once, hence U = N; each sequence is one word, hence U = N / 20.
  std::vector<int32_t> all(100'000), blocks(100'000);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<int32_t>(i);
    blocks[i] = static_cast<int32_t>(i / 20);
  }
  const auto each = count_types(TokenArray::of(all), {});
  ASSERT_EQ(each.size(), 7u);  // 640 ... 40,960
  for (const TypesAtTokens& p : each) {
    EXPECT_EQ(p.types, static_cast<double>(p.tokens));
    EXPECT_EQ(p.spread, 0);
  }
  for (const TypesAtTokens& p : count_types(TokenArray::of(blocks), {}))
    EXPECT_EQ(p.types, static_cast<double>(p.tokens) / 20);
  for (const TypesAtTokens& p : count_types(TokenArray::of(all), {.sequence_length = 33})) {
    EXPECT_EQ(p.types, static_cast<double>(p.tokens));
  }
}

TEST(CountTypes, OfGivenTokens) {
  EXPECT_EQ(types_in(std::vector<int32_t>{4, 0, 4, 9, 0}), 3);
  EXPECT_EQ(types_in({}), 0);
}

TEST(CountTypes, TooShort) {
  EXPECT_THAT(user_error([] { count_types(TokenArray::of(std::vector<int32_t>(2000)), {}); }), Names("2560"));
  EXPECT_THAT(user_error([] { count_types(TokenArray(), {}); }), Names("0 tokens"));
  EXPECT_THAT(user_error([] { count_types(TokenArray::of(std::vector<int32_t>(5000)), {.sequence_length = 4000}); }),
              Names("4000 tokens", "5000"));
}

TEST(RealCorpus, GutenbergFollowsThePaper) {
  if (!getenv("LMX_DATA_DIR") || !locate(find_corpus("gutenberg")).problem.empty()) {
    GTEST_SKIP() << "gutenberg is not below LMX_DATA_DIR";
  }
  const lmx_test::TempFolder cache;
  const std::string part = locate(find_corpus("gutenberg")).directory + "/part-00.txt";
  const Dataset d = open_all_types(
      parse_yaml("name: text\nfiles: ['" + part + "']\ncache_dir: " + cache.root().string() + "\n", "r"));
  const PowerLaw fit = fit_power_law(count_types(d.train, {}));
  EXPECT_NEAR(fit.exponent, 0.64, 0.05);
}

}  // namespace
}  // namespace lmx::app
