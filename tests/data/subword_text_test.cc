// Text as subwords for a language model: documents, their tokens, and the tokenizer.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/corpora/sources.h"
#include "app/datasets/open.h"
#include "app/datasets/survey.h"
#include "app/prepare/chunks.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "base/files.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "data/tokenizer_file.h"
#include "fixture.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Words of several scripts, code, and everything that SentencePiece treats in a special way.
std::string mixed_text() {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text +=
        "the cat sat on mat " + std::to_string(i * 7919 % 1000) + ", Größe naïve мир 日本語 \xF0\x9F\x98\x80  two\n";
  return text;
}

std::vector<std::string> odd_texts() {
  std::string controls;
  for (char c = 0; c < 32; ++c) controls.push_back(c);
  return {"",
          " ",
          "a",
          "  the   cat  ",
          "the\tcat\r\n\n\nsat\n",
          "\xE2\x96\x81the\xE2\x96\x81 \xE2\x96\x85 <unk> </s> <0x41> \xE2\x81\x87",
          controls + "\x7F",
          "\xC2\x85\xE2\x80\xA8\xEF\xBB\xBF\xE1\xA0\x8E",
          "unknown: \xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D \xE0\xA4\x95",
          std::string(5000, 'x') + std::string(300, ' ') + std::string(300, '7')};
}

class SubwordText : public lmx_test::DataTest {
 protected:
  std::string quoted(const std::string& name) const { return "'" + path(name) + "'"; }
  Dataset open(const std::string& files, const std::string& more = "") const { return open_dataset(data(files, more)); }
  Node data(const std::string& files, const std::string& more = "") const {
    const std::string size = more.find("tokenizer_file") == std::string::npos ? "vocab_size: 330\n" : "";
    const std::string valid = more.find("valid_f") == std::string::npos ? "valid_fraction: 0\n" : "";
    return text_data(files, "tokens: subwords\n" + size + valid + more);
  }
  std::string refused(const std::string& more) const {
    return user_error([&] { open(quoted("a.txt"), more); });
  }
  // The documents of the training split as text, each with its ids for documents as `|`.
  static std::vector<std::string> documents(const Dataset& d) {
    std::vector<std::string> all;
    const auto& tokenizer = dynamic_cast<const SubwordTokenizer&>(*d.codecs.target);
    for (int64_t i = 0; i < d.train_strings.size(); ++i) {
      const TextStrings::Range r = d.train_strings.at(i);
      std::vector<int32_t> ids(static_cast<size_t>(r.length));
      d.train.copy(r.begin, ids);
      all.emplace_back();
      for (const int32_t id : ids) all.back() += id == tokenizer.eos() ? "|" : tokenizer.text(id);
    }
    return all;
  }
  std::string trained_model() const {
    write("train.txt", mixed_text());
    return open(quoted("train.txt")).directory + "/subwords.model";
  }
};

TEST_F(SubwordText, DecodingGivesTheTextBack) {
  write("a.txt", mixed_text());
  const Dataset d = open(quoted("a.txt"));
  EXPECT_EQ(d.vocabulary.size(), 330);
  EXPECT_EQ(d.unit, "subword");
  EXPECT_EQ(d.vocabulary.word(0), "<unk>");
  EXPECT_EQ(d.vocabulary.word(1), "</s>");
  EXPECT_EQ(d.vocabulary.count(1), d.train_strings.size());
  const TextCodec& codec = *d.codecs.target;
  std::vector<std::string> texts = odd_texts();
  texts.push_back(mixed_text());
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = codec.encode(text);
    EXPECT_EQ(codec.decode(ids), text);
    const double bytes = std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, int32_t id) {
      return sum + d.token_bytes[static_cast<size_t>(id)];
    });
    EXPECT_EQ(bytes, static_cast<double>(text.size()));
  }
  EXPECT_LT(codec.encode("the cat sat").size(), 7u);
  EXPECT_EQ(codec.encode("777").size(), 3u);  // digits one by one
  EXPECT_EQ(codec.decode({}), "");
  EXPECT_THAT(user_error([&] { static_cast<void>(codec.encode("a\xFF")); }), Names("UTF-8"));
}

// The pieces between cuts are encoded one by one, each only once. SentencePiece itself reads a text as a whole.
TEST_F(SubwordText, PiecesHaveTheIdsOfTheWholeText) {
  const std::string model = trained_model();
  const auto own = make_tokenizer({read_file(model), model, true}), whole = make_tokenizer({read_file(model), model});
  for (const std::string& text : {mixed_text(), std::string("  a  (b)  the catsat...   \xE6\x97\xA5\xE6\x9C\xAC the")})
    for (size_t at = 0; at < text.size(); at += 997)
      if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) {
        EXPECT_EQ(own->encode(text.substr(at)), whole->encode(text.substr(at))) << at;
      }
}

TEST_F(SubwordText, ADocumentIsARecordAParagraphAFileOrALine) {
  write("a.txt", "\n\none\ntwo\n\n\r\nthree\n \nfour\n\n");
  write("b.jsonl", R"({"text": "fi\nve\n\n"})"
                   "\n"
                   R"({"text": ""})"
                   "\n"
                   R"({"text": "six"})"
                   "\n");
  trained_model();
  const auto of = [&](const std::string& more) {
    return documents(
        open(quoted("a.txt") + ", " + quoted("b.jsonl") + ", " + quoted("train.txt"), "field: text\n" + more));
  };
  const std::vector<std::string> paragraphs = of("");
  ASSERT_EQ(paragraphs.size(), 5u);
  EXPECT_EQ(paragraphs[0], "|\n\none\ntwo\n\n\r\n");
  EXPECT_EQ(paragraphs[1], "|three\n \nfour\n\n");
  EXPECT_EQ(paragraphs[2], "|fi\nve\n\n");
  EXPECT_EQ(paragraphs[3], "|six");
  EXPECT_EQ(paragraphs[4], "|" + mixed_text());
  const std::vector<std::string> files = of("document: file");
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0], "|" + read("a.txt"));
  const std::vector<std::string> lines = of("document: string");
  ASSERT_EQ(lines.size(), 305u + 2);
  EXPECT_EQ(lines[0], "|one");
  EXPECT_EQ(of("document: file\ndocument_token: end")[0], read("a.txt") + "|");
  EXPECT_EQ(of("document: file\ndocument_token: none")[0], read("a.txt"));
}

// At the beginning or at the end: the same tokens, shifted by one document.
TEST_F(SubwordText, TheDocumentTokenStandsBetweenDocuments) {
  write("a.txt", "the cat\n\nsat\n\n" + mixed_text());
  const auto tokens = [&](const std::string& place) {
    const Dataset d = open(quoted("a.txt"), "document_token: " + place);
    return std::vector<int32_t>(d.train.tokens().begin(), d.train.tokens().end());
  };
  std::vector<int32_t> begin = tokens("begin"), end = tokens("end"), none = tokens("none");
  EXPECT_EQ(begin[0], Vocabulary::kEos);
  std::rotate(begin.begin(), begin.begin() + 1, begin.end());
  EXPECT_EQ(begin, end);
  std::erase(end, Vocabulary::kEos);
  EXPECT_EQ(end, none);
}

TEST_F(SubwordText, ChunksAndThreadsChangeNothing) {
  std::string text = "\r\n\n";
  for (int i = 0; i < 50; ++i)
    text += std::string(static_cast<size_t>(i % 5), 'x') + "\n" + (i % 3 ? "" : "\r\n") + "y\n";
  const std::string file = write("a.txt", text + "last");
  const auto records = [&](Format format, size_t chunk_bytes) {
    std::vector<SourceFile> files = find_sources({file}, Split::train);
    files[0].format = format;
    ChunkReader reader(files, chunk_bytes, "");
    std::vector<std::pair<int64_t, std::string>> all;
    for (Chunk chunk; reader.next(chunk);)
      for_each_record(files[0], chunk,
                      [&](const TextRecord& r) { all.emplace_back(chunk.first_line + r.line, r.text); });
    return all;
  };
  const auto whole = records(Format::paragraphs, 1 << 20);
  EXPECT_GT(whole.size(), 20u);
  std::string joined;
  for (const auto& [line, paragraph] : whole) {
    EXPECT_EQ(line, std::count(joined.begin(), joined.end(), '\n'));
    joined += paragraph;
  }
  EXPECT_EQ(joined, text + "last");
  for (size_t chunk = 1; chunk < 40; ++chunk) EXPECT_EQ(records(Format::paragraphs, chunk), whole) << chunk;
  for (const size_t chunk : {1, 7, 4096}) EXPECT_EQ(records(Format::whole, chunk).size(), 1u);
  write("b.txt", mixed_text() + "\n" + mixed_text());
  const Dataset one = open(quoted("b.txt"), "document: string\ndeduplicate: true\nthreads: 1");
  std::filesystem::remove_all(path("cache"));
  const Dataset four = open(quoted("b.txt"), "document: string\ndeduplicate: true\nthreads: 4");
  EXPECT_TRUE(std::ranges::equal(one.train.tokens(), four.train.tokens()));
  EXPECT_EQ(read_file(one.directory + "/subwords.model"), read_file(four.directory + "/subwords.model"));
  EXPECT_EQ(one.train_strings.size(), 300);
  EXPECT_EQ(one.hash, four.hash);
}

TEST_F(SubwordText, SplitsTakeWholeDocuments) {
  std::string text, jsonl;
  for (int i = 0; i < 400; ++i) {
    const std::string document = "the cat sat on mat\n" + std::to_string(i) + "\n\n";
    text += document;
    jsonl += R"({"text": "the cat sat on mat\n)" + std::to_string(i) + "\\n\\n\"}\n";
  }
  write("a.txt", text);
  write("a.jsonl", jsonl);
  const std::string more = "valid_fraction: 0.2\ntest_fraction: 0.1\nfield: text\nvocab_size: 290\n";
  const auto opened = [&](const std::string& name, const std::string& extra) {
    return open_dataset(text_data(quoted(name), "tokens: subwords\n" + more + extra));
  };
  const Dataset d = opened("a.jsonl", "");
  EXPECT_EQ(d.train_strings.size() + d.valid_strings.size() + d.test_strings.size(), 400);
  EXPECT_NEAR(static_cast<double>(d.valid_strings.size()), 80, 25);
  EXPECT_EQ(d.train_bytes + d.valid_bytes + d.test_bytes, static_cast<int64_t>(text.size()));
  const double bytes =
      std::accumulate(d.valid.tokens().begin(), d.valid.tokens().end(), 0.0,
                      [&](double sum, int32_t id) { return sum + d.token_bytes[static_cast<size_t>(id)]; });
  EXPECT_EQ(bytes, static_cast<double>(d.valid_bytes));
  EXPECT_THAT(d.report, Names("290 subwords", "trained", "documents", "bytes each"));
  const Dataset part = opened("a.jsonl", "train_fraction: 0.5");
  EXPECT_LT(part.train.size(), d.train.size());
  EXPECT_EQ(read_file(part.directory + "/subwords.model"), read_file(d.directory + "/subwords.model"));
  EXPECT_TRUE(std::ranges::equal(part.valid.tokens(), d.valid.tokens()));
}

TEST_F(SubwordText, ATokenizerFileNeedsNoVocabularySize) {
  const std::string model = trained_model();
  write("a.txt", "the cat sat\n");
  const std::string file = "tokenizer_file: '" + model + "'";
  EXPECT_EQ(tokenizer_entries(model), 330);
  const Node node = data(quoted("a.txt"), file);
  EXPECT_EQ(vocabulary_size(node), 330);
  EXPECT_EQ(full_data_config(node).find("vocab_size")->text, "330");
  const Dataset d = open_dataset(node);
  EXPECT_EQ(documents(d), std::vector<std::string>{"|the cat sat\n"});
  EXPECT_EQ(d.vocabulary.size(), 330);
  EXPECT_THAT(refused(file + "\nvocab_size: 400"), Names("vocab_size 400", "330 entries", "leave vocab_size out"));
  EXPECT_THAT(refused(file + "\nspecial_text: token"), Names("special_text", "tokenizer.json"));
  EXPECT_THAT(refused("special_text: token"), Names("special_text", "tokenizer.json", "a trained tokenizer"));
  write("bad.model", "no model");
  write("half.model", read_file(model).substr(0, 2000));
  for (const std::string bad : {"bad.model", "half.model", "none.model"})
    EXPECT_THAT(refused("tokenizer_file: " + quoted(bad)), Names(path(bad)));
}

TEST_F(SubwordText, WhatCannotBeIsRefused) {
  write("a.txt", mixed_text());
  EXPECT_THAT(refused("lower_case: true"), Names("data.lower_case", "subwords"));
  EXPECT_THAT(refused("preprocess: puri"), Names("data.preprocess", "chars or bytes"));
  EXPECT_THAT(refused("end_of_line: true"), Names("data.end_of_line", "document_token"));
  EXPECT_THAT(refused("valid_fraction: 0.01"), Names("valid split", "0 of the 1 document", "data.document"));
  const auto size = [&](const std::string& n) {
    return user_error(
        [&] { open_dataset(text_data(quoted("a.txt"), "valid_fraction: 0\ntokens: subwords\nvocab_size: " + n)); });
  };
  EXPECT_THAT(size("100"), Names("vocab_size 100", "too small", "256 bytes", "use at least"));
  EXPECT_THAT(size("100_000"), Names("vocab_size 100000", "more than", "finds"));
  EXPECT_THAT(user_error([&] { open_dataset(text_data(quoted("a.txt"), "vocab_size: 9\ndocument: file")); }),
              Names("data.document", "subwords"));
  write("a.txt", "good\nbad \xFF\n");
  EXPECT_THAT(refused(""), Names("a.txt:2", "offset 9", "UTF-8"));
}

TEST_F(SubwordText, ADryRunKnowsItsTokens) {
  write("a.txt", mixed_text());
  const DataCheck check = check_dataset(data(quoted("a.txt")));
  EXPECT_TRUE(check.findings.empty());
  EXPECT_EQ(check.train_tokens, open(quoted("a.txt")).train.size());
  EXPECT_NEAR(static_cast<double>(*sampled_train_tokens(data(quoted("a.txt")))),
              static_cast<double>(mixed_text().size()) / 4, 1);
}

// A run keeps the tokenizer, so that it needs neither the data nor the file.
TEST_F(SubwordText, ATokenizerIsSavedAndRead) {
  write("a.txt", mixed_text());
  const Dataset d = open(quoted("a.txt"));
  save_text_codecs(d.codecs, path("run"));
  const auto loaded = load_text_tokenizer(path("run"));
  EXPECT_EQ(loaded->encode(mixed_text()), d.codecs.target->encode(mixed_text()));
  const std::vector<double> bytes = loaded->token_bytes();
  ASSERT_EQ(bytes.size(), d.token_bytes.size());
  EXPECT_TRUE(std::isnan(bytes[0]) && std::isnan(d.token_bytes[0]));  // <unk>
  EXPECT_TRUE(std::equal(bytes.begin() + 1, bytes.end(), d.token_bytes.begin() + 1));
  write("run/subwords.model", read_file(path("run/subwords.model")) + " ");
  EXPECT_THAT(user_error([&] { load_text_tokenizer(path("run")); }), Names("codecs.json", "subwords.model"));
  std::filesystem::remove(path("run/codecs.json"));
  EXPECT_THAT(user_error([&] { load_text_tokenizer(path("run")); }), Names("codecs.json", "missing"));
}

// Special ids that are not 0 and 1, and words with line ends, survive in vocab.tsv.
TEST_F(SubwordText, AVocabularyKeepsItsSpecialIds) {
  const std::vector<Vocabulary::Entry> entries{{"a\nb", 3}, {"\\n", 2}, {"\t", 1}, {"<s>", 0}};
  for (const Vocabulary::Special special : {Vocabulary::Special{-1, 3}, {2, -1}, {-1, -1}, {0, 1}}) {
    const Vocabulary v(entries, special);
    v.save(path("v.tsv"));
    const Vocabulary read = Vocabulary::load(path("v.tsv"));
    ASSERT_EQ(read.size(), 4);
    for (int32_t id = 0; id < 4; ++id) {
      EXPECT_EQ(read.word(id), v.word(id));
      EXPECT_EQ(read.count(id), v.count(id));
      EXPECT_EQ(read.id(v.word(id)), id);
    }
    EXPECT_EQ(read.unk(), special.unk);
    EXPECT_EQ(read.eos(), special.eos);
    EXPECT_EQ(read.id("none"), special.unk);
  }
  const std::vector<int64_t> counts(256);
  EXPECT_EQ(Vocabulary::bytes(counts).eos(), '\n');
  EXPECT_EQ(Vocabulary::bytes(counts).unk(), -1);
  write("bad.tsv", "# lmx vocabulary: unk -1, eos 4\na\t1\n");
  EXPECT_THAT(user_error([&] { Vocabulary::load(path("bad.tsv")); }), Names("bad.tsv:1", "special id"));
  write("bad.tsv", "# lmx vocabulary: unk x, eos 0\na\t1\n");
  EXPECT_THAT(user_error([&] { Vocabulary::load(path("bad.tsv")); }), Names("bad.tsv:1", "special ids"));
}

}  // namespace
}  // namespace lmx::app
