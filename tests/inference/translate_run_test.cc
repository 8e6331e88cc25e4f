// lmx translate and lmx score on the folder of a new run with a small transformer. Its translations have no meaning,
// but they must not depend on batching or input form.
#include <cmath>

#include "app/datasets/open.h"
#include "app/inference/evaluate_run.h"
#include "app/inference/saved_run.h"
#include "app/pairs/parallel_text.h"
#include "app/scores/bleu.h"
#include "app/translation/translate.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class TranslationRunTest : public RunFolderTest {
 protected:
  TranslationRunTest() {
    std::string source, target;
    for (int i = 0; i < 300; ++i) {
      source += str("The ", word(i), " sees a ", word(i * 7 + 1), ".\n");
      target += str("Der ", word(i), "er sieht einen Nord-", word(i * 7 + 1), "en.\n");
    }
    write_all(path("a.en"), source);
    write_all(path("a.de"), target);
    make_run("run", 100, "{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2}");
  }
  static std::string word(int i) {
    const char* parts[] = {"ba", "ko", "li", "mu", "ter", "gan", "sol"};
    return str(parts[i % 7], parts[i / 7 % 7], parts[i / 49 % 7]);
  }
  void make_run(const std::string& name, int words, const std::string& model, const std::string& more_data = "") {
    save_new_run(name,
                 str("data: {name: parallel, source_language: en, target_language: de, vocab_size: ", words, more_data,
                     ", valid_fraction: 0.1, test_fraction: 0.1, cache_dir: ", path("cache"), ", source_files: [",
                     path("a.en"), "], target_files: [", path("a.de"),
                     "]}\nbatcher: {name: random_windows, sequence_length: 5}\nbatch: {global: 2}\nmodel: ", model,
                     "\nloss: {name: full_softmax}\noptimizer: {name: sgd, lr: 0.1}\n"
                     "train: {steps: 1}\nthreads: 1\n"),
                 10);
  }
  TranslateOptions options() const {
    TranslateOptions o;
    o.search.max_factor = 0;
    o.search.max_offset = 8;
    return o;
  }
  std::string translated(const std::string& input, const TranslateOptions& o) {
    write_all(path("in.txt"), input);
    translate_file(path("run"), o, path("in.txt"), path("out.txt"));
    return lmx_test::read_file(path("out.txt"));
  }
  std::string refused(const std::string& run, const TranslateOptions& o) {
    return user_error([&] { Translator(path(run), o); });
  }
};

TEST_F(TranslationRunTest, BatchesDoNotChangeTranslations) {
  std::string input;
  for (int i = 0; i < 40; ++i)
    input += (i % 9 == 4 ? "" : str("The ", word(i * 3), i % 2 ? " sees a sol" : "", ".")) + "\n";
  TranslateOptions o = options();
  const std::string many = translated(input, o);
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 40);
  o.batch = 1;
  EXPECT_EQ(translated(input, o), many);
  o.batch = 7;
  EXPECT_EQ(translated(input, o), many);
  EXPECT_EQ(translated("", o), "");
  EXPECT_EQ(translated("\n\n", o), "\n\n");
}

TEST_F(TranslationRunTest, AnOutputMayBeItsInput) {
  const std::string input = "The ko.\nA mu sees the gan.\n", wanted = translated(input, options());
  for (const char* name : {"in.txt", "hard.txt", "soft.txt"}) {
    write_all(path("in.txt"), input);
    fs::remove(path("hard.txt"));
    fs::remove(path("soft.txt"));
    fs::create_hard_link(path("in.txt"), path("hard.txt"));
    fs::create_symlink("in.txt", path("soft.txt"));
    translate_file(path("run"), options(), path("in.txt"), path(name));
    EXPECT_EQ(lmx_test::read_file(path(name)), wanted) << name;
  }
  write_all(path("s"), "The ko.\n");
  write_all(path("t"), "Der koer.\n");
  score_files(path("run"), {}, path("s"), path("t"), path("tsv"));
  score_files(path("run"), {}, path("s"), path("t"), path("t"));
  EXPECT_EQ(lmx_test::read_file(path("t")), lmx_test::read_file(path("tsv")));
}

TEST_F(TranslationRunTest, AByteOrderMarkIsNoText) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(translated(mark + "The ko.\nA mu.\n", options()), translated("The ko.\nA mu.\n", options()));
  EXPECT_EQ(translated(mark, options()), "");
  for (const std::string& before : {std::string(), mark}) {
    write_all(path("s"), before + "The ko.\n");
    write_all(path("t"), before + "Der koer.\n");
    score_files(path("run"), {}, path("s"), path("t"), path(before.empty() ? "without" : "with"));
  }
  EXPECT_EQ(lmx_test::read_file(path("with")), lmx_test::read_file(path("without")));
}

TEST_F(TranslationRunTest, ALeastLengthAboveTheGreatestIsRefused) {
  TranslateOptions o = options();  // at most 8 tokens
  o.search.min_length = 8;
  EXPECT_NE(translated("The ko.\n", o), "");
  o.search.min_length = 9;
  EXPECT_THAT(user_error([&] { translated("The ko.\n", o); }), Names("least length", "9", "8", "--max-length"));
}

TEST_F(TranslationRunTest, ScoreAgreesWithSearch) {
  TranslateOptions o = options();
  o.search.beam = o.n_best = 4;
  o.search.max_factor = 1;
  const Translator translator(path("run"), o);
  const Lines sources{"The baba sees a sol.", "The ko.", "A mu sees the gan, and the gan sees a mu."};
  std::string source, target;
  std::vector<Translation> all;
  const auto found = translator.translate(sources);
  for (size_t i = 0; i < sources.size(); ++i)
    for (const Translation& t : found[i]) {
      source += sources[i] + "\n";
      target += t.text + "\n";
      all.push_back(t);
    }
  write_all(path("s"), source);
  write_all(path("t"), target);
  ScorePairsOptions scoring;
  scoring.batch = 3;
  EXPECT_EQ(score_files(path("run"), scoring, path("s"), path("t"), path("tsv")), static_cast<int64_t>(all.size()));
  std::istringstream lines(lmx_test::read_file(path("tsv")));
  size_t compared = 0;
  for (const Translation& t : all) {
    double mean = 0, sum = 0;
    int64_t tokens = 0;
    lines >> mean >> sum >> tokens;
    EXPECT_NEAR(mean * static_cast<double>(tokens), sum, 1e-4);
    // The text may have a shorter segmentation than the one of the search. If it has not, incremental decoding and the
    // whole forward pass agree.
    if (tokens != t.length) continue;
    EXPECT_NEAR(sum, t.logprob, 2e-4 * std::abs(sum));
    ++compared;
  }
  EXPECT_GT(compared, 2u);
}

TEST_F(TranslationRunTest, NBestAndOutputInOrder) {
  TranslateOptions o = options();
  o.n_best = 2;
  const std::string out = translated("The ko.\n\nThe li.\n", o);
  std::istringstream lines(out);
  std::vector<std::string> heads;
  for (std::string line; std::getline(lines, line);) heads.push_back(line.substr(0, 6));
  EXPECT_EQ(heads, (std::vector<std::string>{"0 ||| ", "0 ||| ", "1 ||| ", "2 ||| ", "2 ||| "}));
  EXPECT_THAT(out, HasSubstr("1 |||  ||| logprob=0.0000 length=0 ||| 0.000000\n"));
}

TEST_F(TranslationRunTest, InvalidTextComesAfterWhatWasWritten) {
  TranslateOptions o = options();
  const std::string good = translated("The ko.\nThe li.\n", o);
  write_all(path("in.txt"), "The ko.\nThe li.\nThe \xE9.\nThe mu.\n");
  write_all(path("out.txt"), "old\n");
  const std::string text = user_error([&] { translate_file(path("run"), o, path("in.txt"), path("out.txt")); });
  EXPECT_THAT(text, Names("in.txt:3:", "0xE9", "UTF-8"));
  EXPECT_EQ(lmx_test::read_file(path("out.txt")), "old\n");
  EXPECT_EQ(lmx_test::read_file(path("out.txt.part")), good);
  EXPECT_THAT(run_error([&] { translate_file(path("run"), o, path("a.en"), "/dev/full"); }), Names("No space left"));
  write_all(path("in.txt"), "The ko.\nThe li.\n");
  EXPECT_EQ(translate_file(path("run"), o, path("in.txt"), "/dev/null").lines, 2);  // there is nothing to sync
}

// With a real model: the pieces of the line are searched in batches with bounded memory.
TEST_F(TranslationRunTest, ALineOf100000Words) {
  std::string line;
  for (int i = 0; i < 100'000; ++i) line += str(i ? " " : "", word(i % 30));
  TranslateOptions o = options();
  o.search.beam = 2;
  o.search.max_offset = 3;
  const std::string out = translated(str("The ko.\n", line, "\nThe li.\n"), o);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3);
  const std::string around = translated("The ko.\n\nThe li.\n", o);
  EXPECT_EQ(out.substr(0, out.find('\n')), around.substr(0, around.find('\n')));
  write_all(path("s"), line + "\nThe ko.\n");
  write_all(path("t"), "Der ko.\nDer ko.\n");
  EXPECT_EQ(score_files(path("run"), {}, path("s"), path("t"), path("tsv")), 2);
  EXPECT_THAT(lmx_test::read_file(path("tsv")), testing::StartsWith("-inf\t-inf\t0\n"));
}

TEST_F(TranslationRunTest, TokenizedAndCounted) {
  TranslateOptions o = options();
  const std::string text = translated("The ko sees a li.\n\n", o);
  o.tokenized = true;
  write_all(path("in.txt"), "The ko sees a li.\n\n");
  const TranslatedFile done = translate_file(path("run"), o, path("in.txt"), path("out.txt"));
  const auto found = Translator(path("run"), o).translate(Lines{"The ko sees a li."});
  EXPECT_EQ(lmx_test::read_file(path("out.txt")), found[0][0].tokens + "\n\n");
  EXPECT_EQ(text, found[0][0].text + "\n\n");
  EXPECT_EQ(done.lines, 2);
  EXPECT_EQ(done.tokens, found[0][0].length);
  EXPECT_GT(done.seconds, 0);
}

TEST_F(TranslationRunTest, ScoreRefusesAndSkips) {
  write_all(path("s"), "a\nb\nc\n");
  write_all(path("t"), "a\nb\n");
  ScorePairsOptions o;
  EXPECT_THAT(user_error([&] { score_files(path("run"), o, path("s"), path("t"), path("tsv")); }),
              Names("s has 3 lines", "t has 2"));
  EXPECT_FALSE(fs::exists(path("tsv")));  // no half of a file
  const std::string part = lmx_test::read_file(path("tsv.part"));
  EXPECT_EQ(std::count(part.begin(), part.end(), '\n'), 2);
  write_all(path("t"), str("a\n\n", std::string(600, 'b'), "\n"));
  o.max_length = 20;
  EXPECT_EQ(score_files(path("run"), o, path("s"), path("t"), path("tsv")), 3);
  const std::string tsv = lmx_test::read_file(path("tsv"));
  EXPECT_THAT(tsv, testing::EndsWith("-inf\t-inf\t0\n"));
  EXPECT_THAT(tsv, HasSubstr("\t1\n"));  // an empty side: only </s>
  o.batch = 0;
  EXPECT_THAT(user_error([&] { score_files(path("run"), o, path("s"), path("t"), path("tsv")); }),
              Names("1 to 1000000", "got 0"));
  EXPECT_THAT(user_error([&] { score_files(path("run"), {}, "-", "-", path("tsv")); }), Names("one side"));
  // Text that is not UTF-8, and a full disk: the earlier file stays.
  write_all(path("s"), "a\nb\n\xE9\nd\n");
  write_all(path("t"), "a\nb\nc\nd\n");
  EXPECT_THAT(user_error([&] { score_files(path("run"), {}, path("s"), path("t"), path("tsv")); }),
              Names("s:3:", "0xE9", "UTF-8"));
  EXPECT_EQ(lmx_test::read_file(path("tsv")), tsv);
  EXPECT_THAT(run_error([&] { score_files(path("run"), {}, path("a.en"), path("a.de"), "/dev/full"); }),
              Names("No space left"));
}

TEST_F(TranslationRunTest, PairsInColumnsScoreAsPairsInTwoFiles) {
  const Lines sources = read_lines(path("a.en")), targets = read_lines(path("a.de"));
  std::string first, second;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i < 100) first += str("x\t", targets[i], "\t", sources[i], "\n");
    if (i >= 100) second += str("x\t", targets[i], "\t", sources[i], "\n");
  }
  write_all(path("p1.tsv"), first);
  write_all(path("p2.tsv"), second);
  ScorePairsOptions o;
  o.batch = 2;  // several windows
  EXPECT_EQ(score_files(path("run"), o, path("a.en"), path("a.de"), path("two")), 300);
  EXPECT_EQ(score_pairs(path("run"), o, {.tsv = {path("p*.tsv")}, .columns = {3, 2}}, path("columns")), 300);
  EXPECT_EQ(lmx_test::read_file(path("columns")), lmx_test::read_file(path("two")));
  // A line without its columns.
  write_all(path("bad.tsv"), "a\tb\nc\td\ne\n");
  EXPECT_THAT(user_error([&] { score_pairs(path("run"), o, {.tsv = {path("bad.tsv")}}, path("columns")); }),
              Names("bad.tsv:3"));
  EXPECT_EQ(lmx_test::read_file(path("columns")), lmx_test::read_file(path("two")));
}

// Prepared ids and raw lines give the same translations, and evaluation gives the same score as `lmx bleu`.
TEST_F(TranslationRunTest, EvalCountsBleuOfItsSplit) {
  EvalOptions o;
  o.split = "test";
  const EvalResult r = evaluate_run(path("run"), o);
  ASSERT_TRUE(r.translation.has_value());
  EXPECT_EQ(r.translation->split, "test");
  EXPECT_EQ(r.step, 10);
  EXPECT_NEAR(r.ppl, std::exp(r.nll_nat), 1e-9 * r.ppl);
  const Dataset data = open_dataset(recipe_of_run(path("run")).data);
  const Lines sources = read_lines(data.directory + "/test.source.txt"),
              targets = read_lines(data.directory + "/test.target.txt");
  ASSERT_EQ(static_cast<int64_t>(sources.size()), data.test_pairs.size());
  Lines text, tokens, words;
  const TranslateOptions options;
  for (const auto& found : Translator(path("run"), options).translate(sources)) {
    text.push_back(found[0].text);
    tokens.push_back(found[0].tokens);
  }
  for (int64_t i = 0; i < data.test_pairs.size(); ++i)
    words.push_back(data.codecs.target->decode_tokens(data.test_pairs.target(i)));
  EXPECT_EQ(r.translation->bleu, bleu(text, std::span(&targets, 1)).score);
  EXPECT_EQ(r.translation->multi_bleu, bleu(tokens, std::span(&words, 1), multi_bleu_options()).score);
  const BleuScore split = bleu(tokens, std::span(&words, 1), multi_bleu_options(false, true));
  EXPECT_EQ(r.translation->multi_bleu_split, split.score);
  EXPECT_EQ(r.translation->multi_bleu_split_line, multi_bleu_text(split));
  EXPECT_NE(r.translation->multi_bleu_split_line, r.translation->multi_bleu_line);  // "Nord-..." of the references
  EXPECT_THAT(r.translation->bleu_line,
              testing::StartsWith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:lmx-"));
  o.translate = false;
  EXPECT_FALSE(evaluate_run(path("run"), o).translation.has_value());
  o.translate = true;
  o.split = "train";
  EXPECT_FALSE(evaluate_run(path("run"), o).translation.has_value());
}

TEST_F(TranslationRunTest, CompoundsAreSplitOnce) {
  make_run("dashes", 100, "{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2}",
           ", aggressive_dashes: true");
  const EvalResult r = evaluate_run(path("dashes"), {});
  ASSERT_TRUE(r.translation.has_value());
  EXPECT_EQ(r.translation->multi_bleu_split_line, r.translation->multi_bleu_line);
}

TEST_F(TranslationRunTest, PerplexityOfWordsAsTheyWereBeforeSubwords) {
  write_all(path("t.en"), "The ba sees a ko.\nThe li.\n");
  write_all(path("t.de"), "Der ba sieht einen \u0436ko\u0448 Nord-ko.\nDer li.\n");
  make_run("words", 100, "{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2}",
           str(", test_source_files: [", path("t.en"), "], test_target_files: [", path("t.de"), "]"));
  EvalOptions o;
  o.split = "test";
  o.translate = false;
  const EvalResult r = evaluate_run(path("words"), o);
  ASSERT_TRUE(r.words.has_value());
  EXPECT_EQ(r.words->words, 12);  // Der ba sieht einen [...]ko[...] Nord-ko . + Der li . + two ends
  EXPECT_EQ(r.words->unknown, 1);
  EXPECT_GT(r.tokens, r.words->words);
  EXPECT_NEAR(r.words->ppl, std::exp(r.nll_nat * static_cast<double>(r.tokens) / 12), 1e-9 * r.words->ppl);
}

TEST_F(TranslationRunTest, RunsThatCannotTranslate) {
  EXPECT_THAT(refused("nowhere", options()), Names("run directory"));
  TranslateOptions o = options();
  o.checkpoint = "7";
  EXPECT_THAT(refused("run", o), Names("'7'", "10"));
  // A model without an encoder.
  make_run("lm", 100, "{name: transformer, encoder_layers: 0, decoder_layers: 1, d: 16, ffn: 32, heads: 2}");
  EXPECT_THAT(refused("lm", options()), Names("language model"));
  // The checkpoint has another vocabulary.
  make_run("other", 90, "{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2}");
  o.checkpoint = path("other/checkpoints/step-10");
  EXPECT_THAT(refused("run", o), Names("90 entries", "100"));
  // The subwords are missing, or belong to another run.
  fs::copy(path("run"), path("copy"), fs::copy_options::recursive);
  fs::remove(path("copy/subwords.model"));
  EXPECT_THAT(refused("copy", options()), Names("copy/subwords.model", "missing", "translation run"));
  fs::copy(path("other/subwords.model"), path("copy/subwords.model"));
  EXPECT_THAT(refused("copy", options()), Names("copy/codecs.json", "damaged"));
}

TEST_F(TranslationRunTest, AverageOfOneTranslatesAsItDoes) {
  average_checkpoints({{path("run/checkpoints/step-10"), path("run/checkpoints/step-10")}, "", 0, 0},
                      path("mean.safetensors"));
  TranslateOptions o = options();
  const std::string before = translated("The ko sees a li.\nThe mu.\n", o);
  o.checkpoint = path("mean.safetensors");
  EXPECT_EQ(translated("The ko sees a li.\nThe mu.\n", o), before);
}

}  // namespace
}  // namespace lmx::app
