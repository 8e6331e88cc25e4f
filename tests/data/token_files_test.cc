// Files of ids that other programs have written: formats, order, and what is wrong with them.
#include <cstring>
#include <numeric>

#include "app/datasets/open.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "fixture.h"
#include "lmx/batcher.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class TokenFilesTest : public lmx_test::DataTest {
 protected:
  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  // As write_datafile() of llm.c's dev/data/data_common.py.
  template <class T>
  void write_llmc(const std::string& name, const std::vector<T>& ids, int32_t version = sizeof(T) == 2 ? 1 : 7) const {
    std::vector<int32_t> header(256);
    header[0] = sizeof(T) == 2 ? 20240520 : 20240801;
    header[1] = version;
    header[2] = static_cast<int32_t>(ids.size());
    write(name, bytes_of(header) + bytes_of(ids));
  }
  Node data(const std::string& train, const std::string& format, const std::string& more = "vocab_size: 70000") const {
    return parse_yaml(
        "name: tokens\nformat: " + format + "\ntrain: ['" + path(train) + "']\nvalid: ['" + path(train) + "']\n" + more,
        "recipe.yaml");
  }
  static std::vector<int32_t> all(const TokenArray& tokens) {
    std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
    tokens.copy(0, ids);
    return ids;
  }
};

TEST_F(TokenFilesTest, EveryFormatIsReadAsItIs) {
  const std::vector<uint16_t> narrow{0, 1, 32768, 65535, 7};
  const std::vector<uint32_t> wide{0, 65536, 69999};
  write_llmc("gpt2.bin", narrow);
  write_llmc("llama.bin", wide);
  write("nano.bin", bytes_of(narrow));
  write("wide.bin", bytes_of(wide));
  const std::vector<int32_t> of_narrow{0, 1, 32768, 65535, 7}, of_wide{0, 65536, 69999};
  EXPECT_EQ(all(open_dataset(data("gpt2.bin", "llmc")).train), of_narrow);
  EXPECT_EQ(all(open_dataset(data("llama.bin", "llmc")).train), of_wide);
  EXPECT_EQ(all(open_dataset(data("nano.bin", "raw16")).valid), of_narrow);
  const Dataset d = open_dataset(data("wide.bin", "raw32"));
  EXPECT_EQ(all(d.train), of_wide);
  EXPECT_EQ(d.unit, "subword");
  EXPECT_EQ(d.vocabulary.size(), 70000);
  EXPECT_EQ(d.vocabulary.eos(), -1);
  EXPECT_TRUE(d.token_bytes.empty());
}

// Shards of different widths, in the order of their names, read across their borders.
TEST_F(TokenFilesTest, ShardsAreOneText) {
  std::vector<int32_t> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  write_llmc("a_002.bin", std::vector<uint32_t>(expected.begin() + 400, expected.begin() + 401));
  write_llmc("a_001.bin", std::vector<uint16_t>(expected.begin(), expected.begin() + 400));
  write_llmc("a_010.bin", std::vector<uint16_t>(expected.begin() + 401, expected.end()));
  const Dataset d = open_dataset(data("a_*.bin", "llmc"));
  EXPECT_EQ(all(d.train), expected);
  EXPECT_THROW(static_cast<void>(d.train.tokens()), InternalError);
  for (int64_t first = 0; first < 1000; first += 37) {
    std::vector<int32_t> some(static_cast<size_t>(std::min<int64_t>(450, 1000 - first)));
    d.train.copy(first, some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), expected.begin() + first)) << first;
  }
  const std::vector<int64_t> starts{0, 390, 980};
  const Batch batch = make_batch(d.train, starts, 19, Allocator::cpu());
  for (size_t b = 0; b < starts.size(); ++b)
    for (int64_t t = 0; t < 19; ++t) {
      EXPECT_EQ(batch.inputs.data<int32_t>()[static_cast<int64_t>(b) * 19 + t], starts[b] + t);
      EXPECT_EQ(batch.targets.data<int32_t>()[static_cast<int64_t>(b) * 19 + t], starts[b] + t + 1);
    }
  EXPECT_THAT(open_dataset(data("a_001.bin", "llmc")).hash, testing::Not(d.hash));
}

TEST_F(TokenFilesTest, WhatIsWrongIsNamed) {
  const std::vector<uint16_t> ids{1, 2, 3};
  const auto refused = [&](const std::string& name, const std::string& format,
                           const std::string& more = "vocab_size: 70000") {
    return user_error([&] { open_dataset(data(name, format, more)); });
  };
  write_llmc("version.bin", ids, 2);
  write_llmc("good.bin", ids);
  write("short.bin", read("good.bin").substr(0, 1027));
  write("long.bin", read("good.bin") + "x");
  write("text.bin", "some text\n");
  write("odd.bin", "abc");
  EXPECT_THAT(refused("version.bin", "llmc"), Names("version.bin", "version 2", "reads version 1"));
  EXPECT_THAT(refused("short.bin", "llmc"), Names("short.bin", "1027 bytes", "3 ids", "1030 bytes"));
  EXPECT_THAT(refused("long.bin", "llmc"), Names("long.bin", "1031 bytes"));
  EXPECT_THAT(refused("text.bin", "llmc"), Names("text.bin", "no header of llm.c", "raw16"));
  EXPECT_THAT(refused("odd.bin", "raw16"), Names("odd.bin", "3 bytes", "multiple of 2"));
  EXPECT_THAT(refused("none.bin", "llmc"), Names("none.bin"));
  EXPECT_THAT(refused("good.bin", "llmc", "vocab_size: 3"), Names("good.bin", "id 3 at position 2", "vocabulary, 3"));
  EXPECT_THAT(refused("good.bin", "llmc", ""), Names("vocab_size"));
  EXPECT_THAT(user_error([&] { open_dataset(parse_yaml("name: tokens\nvocab_size: 9\ntrain: [x]", "r.yaml")); }),
              Names("r.yaml:1:1", "train", "valid"));
}

// Opening reads a sample of the ids; lmx data prepare reads all.
TEST_F(TokenFilesTest, APreparationChecksEveryId) {
  std::vector<uint16_t> ids(300'000, 5);
  ids[200'003] = 9;
  write("ids.bin", bytes_of(ids));
  const Node node = data("ids.bin", "raw16", "vocab_size: 9");
  EXPECT_NO_THROW(open_dataset(node));
  EXPECT_THAT(user_error([&] { check_all(node); }), Names("ids.bin", "id 9 at position 200003"));
  for (const size_t at : {size_t{0}, size_t{4095}, ids.size() - 1, ids.size() - 4096}) {
    std::vector<uint16_t> bad(300'000, 5);
    bad[at] = 9;
    write("ids.bin", bytes_of(bad));
    EXPECT_THAT(user_error([&] { open_dataset(node); }), Names("id 9", std::to_string(at)));
  }
  const DataCheck check = check_dataset(node);
  EXPECT_EQ(check.findings.size(), 1u);
}

}  // namespace
}  // namespace lmx::app
