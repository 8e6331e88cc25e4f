// Which files a corpus has, and how they are cut into chunks.
#include "app/corpora/sources.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>

#include "base/files.h"
#include "fixture.h"
#include "names.h"

namespace lmx::data {
namespace {

using lmx_test::Names;
using lmx_test::user_error;

class Sources : public lmx_test::DataTest {
 protected:
  std::vector<std::string> names(const std::vector<std::string>& patterns) {
    std::vector<std::string> found;
    for (const SourceFile& f : find_sources(patterns, Split::drawn)) {
      found.push_back(std::filesystem::relative(f.path, root_).string());
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

TEST_F(Sources, GzipReadsAsItsText) {
  const std::string text = "alpha\nbeta\n" + std::string(100000, 'z') + "\nlast";
  write("plain.txt", text);
  write_gz("packed.txt.gz", text);
  EXPECT_EQ(lines({path("packed.txt.gz")}, 64), lines({path("plain.txt")}, 64));
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
}  // namespace lmx::data
