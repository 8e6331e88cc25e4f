// tokenizer.json: ids as those of Hugging Face's tokenizers, and the parts that are refused.
#include "app/text/subword_tokenizer.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/datasets/open.h"
#include "app/text/byte_pairs.h"
#include "app/text/subwords.h"
#include "app/text/utf8.h"
#include "base/files.h"
#include "data/data_config.h"
#include "data/tokenizer_file.h"
#include "fixture.h"
#include "lmx/random.h"
#include "process/lmx_process.h"

namespace lmx::app {
namespace {

using Json = nlohmann::json;
using namespace lmx_test;

std::shared_ptr<const SubwordTokenizer> tokenizer_of(const Json& json, const std::string& special = "text") {
  return make_tokenizer({json.dump(), "tokenizer.json", false, special});
}

const Json& golden() {
  static const Json json = Json::parse(read_file(lmx_test::source_path() + "/tests/data/golden/tokenizer_json.json"));
  return json;
}

// Compares the ids of all texts of a file that tools/dev/parity/tokenizer_json.py has written.
void expect_equal_ids(const Json& file) {
  for (const Json& expected : file["cases"]) {
    const auto text = tokenizer_of(expected["tokenizer"]), token = tokenizer_of(expected["tokenizer"], "token");
    const auto text_encoder = text->encoder(), token_encoder = token->encoder();  // keep the pieces of all texts
    for (size_t i = 0; i < file["texts"].size(); ++i) {
      const auto own = file["texts"][i].get<std::string>();
      const auto ids = expected["ids"][i].get<std::vector<int32_t>>();
      const auto token_ids = expected["token_ids"].value(std::to_string(i), ids);
      std::vector<int32_t> as_text, as_token;
      text_encoder->append(own, as_text);
      token_encoder->append(own, as_token);
      ASSERT_EQ(as_text, ids) << expected["name"] << " " << i << ": " << own.substr(0, 100);
      ASSERT_EQ(as_token, token_ids) << expected["name"] << " " << i << ": " << own.substr(0, 100);
    }
  }
}

TEST(TokenizerJson, IdsAreThoseOfTokenizers) {
  expect_equal_ids(golden());
}

// LMX_PYTHON names a Python that has the package.
TEST(TokenizerJson, SoAreThoseOfAMegabyteOfRandomText) {
  const char* named = std::getenv("LMX_PYTHON");
  const std::string python = named ? named : "python3";
  // The shell says so if there is no such program.
  if (lmx_test::run_process({"/bin/sh", "-c", "\"$0\" -c 'import tokenizers'", python}).code != 0)
    GTEST_SKIP() << python << " is missing or has no package tokenizers";
  const lmx_test::TempFolder folder;
  const std::string script = lmx_test::source_path() + "/tools/dev/parity/tokenizer_json.py";
  const auto made = lmx_test::run_process({python, script, folder.path(""), "--large"});
  ASSERT_THAT(made, Succeeds());
  expect_equal_ids(Json::parse(read_file(folder.path("large.json"))));
}

TEST(TokenizerJson, DecodingGivesTheTextBack) {
  for (const Json& expected : golden()["cases"]) {
    const auto tokenizer = tokenizer_of(expected["tokenizer"]);
    const bool composes = !expected["tokenizer"]["normalizer"].is_null();
    const std::vector<double> bytes = tokenizer->token_bytes();
    for (const Json& text : golden()["texts"]) {
      const auto own = text.get<std::string>();
      if (composes && own.find("e\xCC\x81") != std::string::npos) continue;  // not in the form NFC
      if (own.find("<tool>") != std::string::npos) continue;                 // takes the spaces beside it
      const std::vector<int32_t> ids = tokenizer->encode(own);
      EXPECT_EQ(tokenizer->decode(ids), own);
      double sum = 0;
      for (const int32_t id : ids) sum += bytes[static_cast<size_t>(id)];
      EXPECT_EQ(sum, static_cast<double>(own.size()));
    }
  }
}

TEST(TokenizerJson, BothSpellingsOfMergesAreEqual) {
  Json json = golden()["cases"][0]["tokenizer"];
  const auto arrays = tokenizer_of(json);
  for (Json& merge : json["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto strings = tokenizer_of(json);
  for (const Json& text : golden()["texts"])
    EXPECT_EQ(arrays->encode(text.get<std::string>()), strings->encode(text.get<std::string>()));
}

// Composition in parts equals that of the whole text, as utf8proc does it.
TEST(Utf8, TextIsComposedAsAWhole) {
  std::string memory, other, all;
  const auto whole = [](const std::string& text) {
    const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> own(
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str())), std::free);
    return std::string(reinterpret_cast<const char*>(own.get()));
  };
  // The characters of each decomposition behind its first one are composed with the one before them.
  for (char32_t c = 1; c < 0x110000; ++c) {
    std::array<utf8proc_int32_t, 32> parts{};
    const auto code = static_cast<utf8proc_int32_t>(c);
    const auto n = utf8proc_decompose_char(code, parts.data(), 32, UTF8PROC_DECOMPOSE, nullptr);
    for (utf8proc_ssize_t i = 1; i < n; ++i)
      ASSERT_FALSE(begins_composition(static_cast<char32_t>(parts[static_cast<size_t>(i)]))) << code;
    if (!begins_composition(c)) continue;
    ASSERT_EQ(utf8proc_get_property(code)->combining_class, 0) << code;
    other.clear();
    append_utf8(other, c);
    ASSERT_EQ(whole(other), other) << code;
  }
  const std::u32string some =
      U"ae\u00e9\u0301\u0323\u1ea1\u304b\u3099\u4e2d\uac00\u11a8\u2126\u0430\u0306\u201c\uf900 z";
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < 1 + seed % 12; ++i) append_utf8(text, some[RandomKey(seed).below(i, some.size())]);
    ASSERT_EQ(compose_characters(text, memory), whole(text)) << text;
  }
  const std::string quoted = "a\u201cb";
  EXPECT_EQ(compose_characters(quoted, memory).data(), quoted.data());  // is not copied
}

// A short piece is searched again and again, a long one has a heap: both give the same ids.
TEST(BytePairs, ShortAndLongPiecesAreMergedAlike) {
  BytePairs pairs;
  for (const auto& [a, b, c] : std::vector<std::array<int32_t, 3>>{
           {1, 1, 3}, {3, 3, 4}, {2, 1, 5}, {5, 4, 6}, {1, 2, 7}, {4, 4, 8}, {7, 7, 9}, {3, 1, 10}, {8, 8, 11}})
    EXPECT_TRUE(pairs.add(a, b, c));
  EXPECT_FALSE(pairs.add(1, 1, 5));
  for (uint32_t seed = 1; seed < 200; ++seed) {
    std::vector<int32_t> piece;
    for (uint32_t i = 0; i < seed % 60 + 2; ++i)
      piece.push_back(1 + static_cast<int32_t>((seed * 2654435761u >> (i % 29)) % 5 == 0));
    std::vector<int32_t> expected = piece, all;
    pairs.merge(expected);
    std::vector<int32_t> repeated;
    constexpr int kCopies = 40;  // id 0 merges with nothing
    for (int i = 0; i < kCopies; ++i) {
      repeated.insert(repeated.end(), piece.begin(), piece.end());
      repeated.push_back(0);
      all.insert(all.end(), expected.begin(), expected.end());
      all.push_back(0);
    }
    pairs.merge(repeated);
    EXPECT_EQ(repeated, all) << seed;
  }
}

struct Refusal {
  const char* where;  // JSON pointer of the part that is replaced
  const char* value;
  Words names;
};

TEST(TokenizerJson, RefusesByName) {
  const std::vector<Refusal> refusals{
      {"/model/type", R"("Unigram")", {"model of type", "Unigram", "BPE"}},
      {"/model/dropout", "0.1", {"model.dropout"}},
      {"/model/unk_token", R"("<unk>")", {"model.unk_token"}},
      {"/model/continuing_subword_prefix", R"("##")", {"model.continuing_subword_prefix"}},
      {"/model/end_of_word_suffix", R"("</w>")", {"model.end_of_word_suffix"}},
      {"/model/byte_fallback", "true", {"model.byte_fallback", ".model"}},
      {"/model/vocab", "{}", {"model.vocab", "empty"}},
      {"/model/vocab", "[]", {"model.vocab", "no object"}},
      {"/model/vocab", R"({"a": 0})", {"no token for byte"}},
      {"/model/vocab/a", "-1", {"the id of 'a'", "-1"}},
      {"/model/vocab/a", "99999999", {"the id of 'a'"}},
      {"/model/vocab/a", "1.5", {"the id of 'a'"}},
      {"/model/vocab/a", "5", {"have the same id, 5"}},
      {"/model/merges", "{}", {"model.merges"}},
      {"/model/merges/3", R"("ab")", {"model.merges[3]", "no pair"}},
      {"/model/merges/3", R"(["a"])", {"model.merges[3]", "no pair"}},
      {"/model/merges/3", R"(["a", "qqq"])", {"model.merges[3]", "'qqq'", "not in model.vocab"}},
      {"/model/merges/3", R"(["a", "a"])", {"model.merges[3]", "twice"}},
      {"/normalizer", R"({"type": "Lowercase"})", {"normalizer", "Lowercase", "NFC"}},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFKC"}]})", {"normalizer", "NFKC"}},
      {"/pre_tokenizer", "null", {"pre_tokenizer", "ByteLevel"}},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", {"pre_tokenizer", "Metaspace"}},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
       {"ByteLevel", "last", "Digits"}},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": true})",
       {"Split.invert"}},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Contiguous"})",
       {"behavior", "Contiguous"}},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
       {"'(a' is no pattern"}},
      {"/post_processor", R"({"type": "BertProcessing"})", {"post_processor", "BertProcessing"}},
      {"/decoder", R"({"type": "WordPiece"})", {"decoder", "WordPiece"}},
      {"/added_tokens/0/single_word", "true", {"<|endoftext|>", "single_word"}},
      {"/added_tokens/0/id", "5", {"have the same id, 5"}},
      {"/added_tokens/0/id", R"("x")", {"the id of '<|endoftext|>'"}},
      {"/added_tokens/0/content", R"("a")", {"'a'", "two ids"}},
      {"/added_tokens/1/content", R"("<|endoftext|>")", {"twice"}},
      {"/added_tokens/0/special", "1", {"special", "neither true nor false"}},
  };
  for (const Refusal& r : refusals) {
    Json json = golden()["cases"][0]["tokenizer"];
    json[Json::json_pointer(r.where)] = Json::parse(r.value);
    const std::string message = user_error([&] { tokenizer_of(json); });
    for (const std::string& name : r.names) EXPECT_THAT(message, testing::HasSubstr(name)) << r.where << " " << r.value;
    EXPECT_THAT(message, testing::StartsWith("[data] tokenizer.json: "));
  }
  EXPECT_THAT(user_error([&] { make_tokenizer({"{\"a\": ", "t.json"}); }), Names("t.json", "no JSON"));
  EXPECT_THAT(user_error([&] { make_tokenizer({"{}", "t.json"}); }), Names("t.json", "has no 'model'"));
}

TEST(TokenizerJson, TextThatReadersOfJsonTakeDifferentlyIsRefused) {
  const std::string good = golden()["cases"][0]["tokenizer"].dump();
  const auto refused = [](const std::string& text) { return user_error([&] { make_tokenizer({text, "t.json"}); }); };
  EXPECT_THAT(refused(good + std::string(1, '\0')), Names("t.json is no JSON", str("byte ", good.size(), " is NUL")));
  EXPECT_THAT(refused(good + std::string(1, '\0') + "{"), Names("t.json is no JSON", "NUL"));
  std::string twice = good;
  twice.insert(twice.find("\"vocab\":{") + 9, "\"!\":7,");
  EXPECT_THAT(refused(twice), Names("t.json", "the key '!' twice"));
  EXPECT_THAT(refused("{\"a\":" + std::string(100'000, '[')), Names("t.json", "nested too deeply"));
}

// A vocabulary names the ids that have no token, also those behind the last one of the tokenizer.
TEST(TokenizerJson, NoTokenHasTheNameOfAnotherId) {
  Json json = golden()["cases"][0]["tokenizer"];
  json["added_tokens"][2]["id"] = 404;
  const auto named = [&](const std::string& name) {
    json["added_tokens"][2]["content"] = name;
    return user_error([&] { tokenizer_of(json)->vocabulary(std::vector<int64_t>(405, 1)); });
  };
  EXPECT_EQ(named("<tool>"), "no error");
  EXPECT_EQ(named("<no token 404>"), "no error");
  for (const std::string name : {"<no token 402>", "<no token 405>"})
    EXPECT_THAT(named(name), Names("tokenizer.json", "the id 404", "'" + name + "'"));
}

// As tokenizers 0.23.3 finds them.
TEST(TokenizerJson, NormalizedTokensAreFoundInComposedText) {
  Json json = golden()["cases"][0]["tokenizer"];
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"][2] = {{"id", 402}, {"content", "<e\u0301>"}, {"special", false}, {"normalized", true}};
  const auto has_token = [&](const std::string& text) {
    const std::vector<int32_t> ids = tokenizer_of(json)->encode(text);
    return std::ranges::count(ids, 402) == 1;
  };
  EXPECT_TRUE(has_token("a<e\u0301>b"));
  EXPECT_TRUE(has_token("a<\u00e9>b"));
  EXPECT_EQ(tokenizer_of(json)->name(402), "<e\u0301>");
  json["added_tokens"].push_back({{"id", 403}, {"content", "<\u00e9>"}, {"special", false}, {"normalized", true}});
  EXPECT_THAT(user_error([&] { tokenizer_of(json); }), Names("tokenizer.json", "'<\u00e9>' twice", "NFC"));
  json["added_tokens"].erase(3);
  json["added_tokens"][2]["normalized"] = false;
  EXPECT_TRUE(has_token("a<e\u0301>b"));
  EXPECT_FALSE(has_token("a<\u00e9>b"));
}

TEST(Pattern, SyntaxThatPcre2ReadsDifferentlyIsRefused) {
  for (const std::string bad : {"\\w+",    "\\bx", "\\h",   "[a[b]]", "[a&&b]", "a{1,2}+", "(?<n>a)", "(?i)a",
                                "(*UCP)a", "\\1",  "[\\S]", "\\x80",  "(?R)",   "\\Qa",    "\\R",     "[[:alpha:]]",
                                "a\\",     "\\pL", "\\u12", "[]a]",   "(?#a)a", "a{2}?b",  "\\x{41",  "\\x{}"})
    EXPECT_THAT(user_error([&] { Pattern pattern(bad, false, "at: "); }), Names("at: ", "does not read", bad)) << bad;
  for (const std::string bad : {"a*", "", "(?=a)", "(a|)"})
    EXPECT_THAT(user_error([&] { Pattern pattern(bad, false, "at: "); }), Names("empty text")) << bad;
  for (const std::string bad : {"(", "[a", "\\p{Nothing}", "\\p{L&}", "\\p{LC}", "a**b(", "\\x{110000}"})
    EXPECT_THAT(user_error([&] { Pattern pattern(bad, false, "at: "); }), Names("is no pattern")) << bad;
}

// Oniguruma compares folded texts there: "ss" is also U+00DF.
TEST(Pattern, LettersThatFoldToSeveralAreRefusedWithoutCase) {
  for (const std::string bad :
       {"(?i:strasse)", "(?i:aSs)", "(?i:s(?:S))", "(?i:s{1}s)", "(?i:s(?i:t))", "(?i:a|fI)", "(?i:\u00df)",
        "(?i:[\u00e0-\u00ff])", "(?i:[\\p{L}])", "(?i:[\\D])", "(?i:\\x{df})", "(?i:(?:a)|\\u00df)"})
    EXPECT_THAT(user_error([&] { Pattern pattern(bad, false, "at: "); }), Names("at: ", "within '(?i:'", bad)) << bad;
  for (const std::string good :
       {"(?i:s)s", "(?i:s|s)", "(?i:s't)", "(?i:[a-z]s)", "(?i:a)\u00df|ss", "(?i:[(]s)", "(?i:s)(?i:s)"})
    EXPECT_EQ(user_error([&] { Pattern pattern(good, false, "at: "); }), "no error") << good;
}

Words cut(const std::vector<PreTokenizerStep>& steps, const std::string& text) {
  Words pieces;
  PreTokenizer(steps).cut(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

PreTokenizerStep step(const std::string& pattern, PreTokenizerStep::Behaviour behaviour, bool literal = false) {
  return {Pattern(pattern, literal, ""), behaviour};
}

// As pre_tokenizers.Split of tokenizers 0.23.3 cuts the same text.
TEST(PreTokenizer, BehavioursAreThoseOfTokenizers) {
  using enum PreTokenizerStep::Behaviour;
  using Pieces = Words;
  EXPECT_EQ(cut({step("-", isolated)}, "-a--b-c"), (Pieces{"-", "a", "-", "-", "b", "-", "c"}));
  EXPECT_EQ(cut({step("-", removed)}, "-a--b-c"), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(cut({step("-", with_previous)}, "-a--b-c"), (Pieces{"-", "a-", "-", "b-", "c"}));
  EXPECT_EQ(cut({step("-", with_next)}, "-a--b-c"), (Pieces{"-a", "-", "-b", "-c"}));
  EXPECT_EQ(cut({step("a.", isolated, true)}, "a.ab"), (Pieces{"a.", "ab"}));
  EXPECT_EQ(cut({step(" ", removed), step("\\p{N}", isolated)}, "a1 2b"), (Pieces{"a", "1", "2", "b"}));
  PreTokenizerStep prefix{std::nullopt, isolated, true};
  EXPECT_EQ(cut({step(",", isolated), prefix}, "a, b"), (Pieces{" a", " ,", " b"}));
  EXPECT_EQ(cut({step("\\s+", isolated)},
                "a\xE1\xA0\x8E"
                "b\xC2\x85\x0B"
                "c"),
            (Pieces{"a\xE1\xA0\x8E"
                    "b",
                    "\xC2\x85\x0B", "c"}));
}

// As Split of tokenizers 0.23.3 cuts the same text.
TEST(PreTokenizer, PatternsMatchAsWithOniguruma) {
  using enum PreTokenizerStep::Behaviour;
  const auto pieces = [](const std::string& pattern, const std::string& text) {
    return cut({step(pattern, isolated)}, text);
  };
  EXPECT_EQ(pieces("a{,3}b", "aaaab b"), (Words{"a", "aaab", " ", "b"}));
  EXPECT_EQ(pieces("a{,2}?b", "aaab"), (Words{"a", "aab"}));
  EXPECT_EQ(pieces("a{,}+b", "aab a{,}}}b"), (Words{"aab ", "a{,}}}b"}));
  EXPECT_EQ(pieces("a{ 2}", "aa a{ 2}"), (Words{"aa ", "a{ 2}"}));
  EXPECT_EQ(pieces("a{2", "aa{2"), (Words{"a", "a{2"}));
  EXPECT_EQ(pieces("\\x{61}{2}b|\\u0062{2,}", "aabbb"), (Words{"aab", "bb"}));
  EXPECT_EQ(pieces("a+(b)?+a", "xaaa"), (Words{"x", "aaa"}));
  EXPECT_EQ(pieces("a+(?>(b)?)a", "xaaa"), (Words{"x", "aaa"}));
  // U+017F is an s without case, U+212A is a k; U+FB05 folds to "st", but no alternative has both letters.
  const std::string gpt = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  EXPECT_EQ(pieces(gpt, "'S'\u017f'LL'Re'k'\ufb05"), (Words{"'S", "'\u017f", "'LL", "'Re", "'k'\ufb05"}));
  EXPECT_EQ(pieces("'(?i:[sdmt]|ll|ve|re)", "'S'\u017f'LL'Re'k"), (Words{"'S", "'\u017f", "'LL", "'Re", "'k"}));
  EXPECT_EQ(pieces("(?i:k)", "K\u212ax"), (Words{"K", "\u212a", "x"}));
}

TEST(PreTokenizer, AHostilePatternEndsWithItsName) {
  const std::string text = std::string(40, 'a') + "b c";
  EXPECT_THAT(user_error([&] { cut({step("(a+)+c", PreTokenizerStep::Behaviour::isolated)}, text + text); }),
              Names("(a+)+c", "cannot be matched", "limit"));
  // One that has much to do within a long run, but is harmless.
  EXPECT_EQ(cut({step("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", PreTokenizerStep::Behaviour::isolated)},
                std::string(100'000, ' ') + "x")
                .size(),
            3u);
}

class TokenizerJsonData : public lmx_test::DataTest {
 protected:
  std::string save(const Json& json) const { return write("tokenizer.json", json.dump()); }
};

TEST_F(TokenizerJsonData, TextIsPreparedWithIt) {
  const Json& expected = golden()["cases"][1];
  const std::string file = save(expected["tokenizer"]);
  std::string jsonl;
  for (const Json& text : golden()["texts"])
    if (text != "") jsonl += Json{{"text", text}}.dump() + "\n";
  write("a.jsonl", jsonl);
  const auto open = [&](const std::string& more) {
    return open_dataset(
        text_data("'" + path("a.jsonl") + "'",
                  "tokens: subwords\nfield: text\nvalid_fraction: 0\ntokenizer_file: '" + file + "'\n" + more));
  };
  const Dataset d = open("");
  std::vector<int32_t> ids;
  for (const Json& own : expected["ids"]) {
    if (own.empty()) continue;
    ids.push_back(400);  // <|endoftext|>
    for (const Json& id : own) ids.push_back(id);
  }
  EXPECT_TRUE(std::ranges::equal(d.train.tokens(), ids));
  EXPECT_EQ(d.vocabulary.size(), 403);
  EXPECT_EQ(tokenizer_entries(file), 403);
  EXPECT_EQ(d.vocabulary.eos(), 400);
  EXPECT_EQ(d.vocabulary.unk(), -1);
  EXPECT_EQ(d.vocabulary.word(400), "<|endoftext|>");
  EXPECT_THAT(d.report, Names("403 subwords", "tokenizer.json", "Unicode"));
  save_text_codecs(d.codecs, path("run"));
  EXPECT_EQ(read_file(path("run/tokenizer.json")), read_file(file));
  const auto loaded = load_text_tokenizer(path("run"));
  EXPECT_EQ(loaded->encode("It's 1234"), d.codecs.target->encode("It's 1234"));
  EXPECT_NE(open("special_text: token").hash, d.hash);
  EXPECT_THAT(user_error([&] { open("special_text: refuse"); }), Names("<|endoftext|>", "special_text"));
}

// Two files of a run must fit: the message names the one that is missing or damaged.
TEST_F(TokenizerJsonData, DamageIsThatOfTheFileItIsIn) {
  const auto tokenizer = tokenizer_of(golden()["cases"][0]["tokenizer"]);
  save_text_codecs({nullptr, tokenizer}, path("run"));
  const auto refused = [&] { return user_error([&] { load_text_tokenizer(path("run")); }); };
  EXPECT_EQ(refused(), "no error");
  write("run/tokenizer.json", tokenizer->file() + " ");
  EXPECT_THAT(refused(), testing::StartsWith("[data] " + path("run/tokenizer.json") + " is damaged"));
  std::filesystem::remove(path("run/tokenizer.json"));
  EXPECT_THAT(refused(), testing::StartsWith("[data] " + path("run/tokenizer.json") + " is missing"));
  write("run/codecs.json", "{}");
  EXPECT_THAT(refused(), testing::StartsWith("[data] " + path("run/codecs.json") + " is damaged"));
}

// A file is counted before it is read, which must not hide what is wrong with it.
TEST_F(TokenizerJsonData, OtherKindsOfModelsAreNamed) {
  Json json = golden()["cases"][0]["tokenizer"];
  json["model"] = Json::parse(R"({"type": "Unigram", "vocab": [["<unk>", 0], ["a", -1.5], ["b", -2]], "unk_id": 0})");
  const std::string file = save(json);
  write("a.txt", "some text");
  EXPECT_THAT(
      user_error([&] {
        open_dataset(text_data("'" + path("a.txt") + "'", "tokens: subwords\ntokenizer_file: '" + file + "'\n"));
      }),
      Names("tokenizer.json", "model of type", "Unigram", "BPE"));
}

TEST_F(TokenizerJsonData, WithoutATokenForTheEndOfATextItIsToldSo) {
  Json json = golden()["cases"][0]["tokenizer"];
  json["added_tokens"].erase(0);
  json["post_processor"] = nullptr;
  const std::string file = save(json);
  write("a.txt", "some text");
  const auto open = [&](const std::string& more) {
    return open_dataset(text_data("'" + path("a.txt") + "'",
                                  "tokens: subwords\nvalid_fraction: 0\ntokenizer_file: '" + file + "'\n" + more));
  };
  EXPECT_THAT(user_error([&] { open(""); }), Names("end of a text", "document_token"));
  EXPECT_EQ(open("document_token: none").vocabulary.eos(), -1);
  // The template of the post-processor names the token that comes before a text.
  json["post_processor"] =
      Json::parse(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}})");
  save(json);
  EXPECT_EQ(open("").vocabulary.word(open("").vocabulary.eos()), "<|end|>");
}

}  // namespace
}  // namespace lmx::app
