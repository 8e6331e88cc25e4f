// A model of bytes from training to its uses: shards, bits per character, sampled text, features, a probe, one unit.
#include <algorithm>
#include <cmath>

#include "app/run/dry_run.h"
#include "process/run_fixture.h"
#include "process/terminal_process.h"
#include "process/text_fixtures.h"

namespace lmx_test {
namespace {

// The largest difference between the numbers of two files of the same form.
double farthest(const std::string& a, const std::string& b) {
  std::istringstream one(a), two(b);
  double most = 0;
  std::string x, y;
  while (std::getline(one, x) && std::getline(two, y)) {
    std::istringstream left(x), right(y);
    while (std::getline(left, x, ',') && std::getline(right, y, ',')) {
      if (x == y) continue;
      most = std::max(most, std::abs(std::stod(x) - std::stod(y)));
    }
  }
  return a.empty() ? INFINITY : most;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F;
}

// A model after little training samples bytes of every kind; a terminal would interpret ESC and BEL.
TEST_F(BytesRun, ATerminalGetsNoControlCharacters) {
  ASSERT_THAT(run("a", {"train.steps=2"}), Succeeds());
  const Words words{"generate", path("a"), "--tokens", "400", "--temperature", "3"};
  const std::string raw = good(words).out;
  EXPECT_GT(std::count_if(raw.begin(), raw.end(), is_control), 5);
  auto dumb = environment();
  dumb["TERM"] = "dumb";  // without a line of progress, which control characters overwrite
  const auto [code, shown] = run_on_terminal(words, dumb);
  EXPECT_EQ(code, 0) << shown;
  EXPECT_EQ(std::count_if(shown.begin(), shown.end(), is_control), 0);
  EXPECT_THAT(shown, Names("<U+001B>", "<U+0007>"));
}

TEST_F(BytesRun, TrainsEvaluatesAndResumes) {
  const Outcome trained = run("a");
  ASSERT_THAT(trained, Prints(" report "));
  EXPECT_THAT(trained.err, Names("vocabulary 256", "tbptt: 6 shards", "% of the tokens"));
  EXPECT_THAT(read_file(path("a/metrics.jsonl")), Names("\"bpc\":", "bytes_per_s"));
  EXPECT_NEAR(number_behind(trained.out, "valid bpc"), number_behind(trained.out, "valid nll_bit"), 1e-5);
  const Outcome early = run("early", {"train.eval_every=5", "stop.when='valid.bpc <= 7.9'"});
  EXPECT_THAT(early.out, Names("stopped", "valid.bpc"));
  ASSERT_THAT(run("b", {"--until", "23"}), Succeeds());
  ASSERT_THAT(run("b", {"--resume", path("b")}), Succeeds());
  EXPECT_TRUE(model("a", 60) == model("b", 60));
  const std::string out = good({"eval", path("a"), "--split", "test", "--shards", "3"}).out;
  const double bpc = number_behind(out, "test bpc");
  EXPECT_NEAR(bpc, number_behind(out, "test nll_bit"), 1e-5);
  EXPECT_NEAR(number_behind(out, "test ppl"), std::exp2(bpc), 0.01);
  EXPECT_NEAR(number_behind(out, "test compression_ratio"), 8 / bpc, 0.02);  // for bytes the ratio is 8 / bpc
  EXPECT_NEAR(number_behind(out, "test bpc_3_shards"), bpc, 0.3);
  EXPECT_THAT(out, Names("a character is a byte", "3 shards"));
  EXPECT_EQ(lmx({"eval", path("a"), "--split", "test", "--shards", "999"}).code, 2);
}

// Puri 2018 validates on one shard of strings for each sequence of a batch, independent of the number of ranks.
TEST_F(BytesRun, ValidatesOnShardsOfStrings) {
  const auto bpc = [&](const std::string& name, const Words& more) {
    const Outcome trained = run(name, joined(more, {"train.steps=6", "train.eval_shards=true"}));
    EXPECT_THAT(trained, Succeeds());
    return number_behind(trained.out, "valid bpc");
  };
  const double one = bpc("one", {});
  EXPECT_NEAR(bpc("three", {"comm={name: virtual, ranks: 3}"}), one, 1e-4);
  const std::string out = good({"eval", path("one"), "--split", "valid", "--shards", "4"}).out;
  EXPECT_NEAR(number_behind(out, "valid bpc"), one, 1e-5);
  EXPECT_NEAR(number_behind(out, "valid bpc_4_shards"), one, 0.01);  // there every shard has the same weight
  EXPECT_NE(bpc("part", {"train.eval_tokens=40"}), one);
  EXPECT_NE(number_behind(run("text", {"train.steps=6"}).out, "valid bpc"), one);
}

TEST_F(BytesRun, ShardsThatCannotBeAreToldBeforeTraining) {
  EXPECT_THAT(run("many", {"train.eval_shards=true", "train.eval_batch=500"}), Refuses("500 shards", "valid split"));
  EXPECT_THAT(run("words", {"train.eval_shards=true", "data.tokens=words", "data.vocab_size=20", "~data.preprocess",
                            "batcher.shards=0"}),
              Refuses("valid split", "chars", "bytes"));
}

TEST_F(BytesRun, ADryRunFindsWhatStopsARun) {
  const std::vector<Words> changes{{},
                                   {"batch.global=200", "batcher.shards=200"},
                                   {"batcher.sequence_length=2000"},
                                   {"train.eval_shards=true", "train.eval_batch=500"},
                                   {"batcher.shards=150", "batcher.reshuffle=true", "batcher.sequence_length=50"},
                                   {"data.valid_fraction=0"}};
  for (Words change : changes) {
    change.push_back("train.steps=2");
    const Outcome real = run("x", change);
    change.push_back("--dry-run");
    const Outcome dry = run("x", change);
    const size_t at = dry.out.find("data: not ready\n  ");
    ASSERT_EQ(dry.code, at == std::string::npos ? 0 : 2) << dry.err;
    EXPECT_EQ(real.code, at == std::string::npos ? 0 : 2) << testing::PrintToString(change) << real.err;
    std::filesystem::remove_all(path("x"));
    if (at == std::string::npos) continue;
    const std::string finding = dry.out.substr(at + 18, dry.out.find('\n', at + 18) - at - 18);
    EXPECT_THAT(real.err, Names(finding)) << "the same finding";
    EXPECT_THAT(finding, Not(HasSubstr("-")));
  }
}

TEST_F(BytesRun, TextIsDrawnByteByByte) {
  ASSERT_THAT(run("a"), Succeeds());
  const auto text = [&](const Words& more) {
    return good(joined({"generate", path("a"), "--prompt", "a <i>bad</i> fi", "--tokens", "40"}, more)).out;
  };
  EXPECT_EQ(text({}).substr(0, 8), "a bad fi");
  EXPECT_EQ(text({}).size(), 8U + 40 + 1);
  EXPECT_EQ(text({}), text({}));
  EXPECT_NE(text({}), text({"--seed", "2"}));
  EXPECT_EQ(text({"--temperature", "0"}), text({"--top-k", "1", "--seed", "9"}));
  EXPECT_EQ(text({"--temperature", "0"}), text({"--top-p", "0.000001", "--seed", "9"}));
  EXPECT_NE(text({"--top-p", "0.3"}), text({}));
  EXPECT_NE(text({"--hold", "3=9"}), text({"--hold", "3=-9"}));
  EXPECT_THAT(lmx({"generate", path("a"), "--hold", "12=1"}), Refuses("lstm.1.c", "0 to 11", "12"));
  EXPECT_THAT(lmx({"generate", path("a"), "--hold", "x"}).err, Names("--hold", "UNIT=VALUE"));
  EXPECT_THAT(lmx({"generate", path("a"), "--state", "hidden"}).err, Names("[generate] --state", "--hold"));
  EXPECT_THAT(lmx({"generate", path("a"), "--top-p", "0"}).err, Names("[generate] top-p"));
}

TEST_F(BytesRun, FeaturesAndProbe) {
  ASSERT_THAT(run("a"), Succeeds());
  const std::string csv = path("reviews.csv");
  EXPECT_THAT(good({"features", path("a"), csv, "--out", path("f.csv")}).out,
              Names("lstm.1.c", "last byte", "texts 240\nunits 12\n"));
  good({"features", path("a"), csv, "--out", path("one.csv"), "--batch", "1"});
  EXPECT_LT(farthest(read_file(path("f.csv")), read_file(path("one.csv"))), 1e-5)
      << "other texts of the batch change a text's features";
  good({"features", path("a"), csv, "--out", path("h.safetensors"), "--state", "lstm.0.h", "--no-labels"});
  EXPECT_THAT(lmx({"features", path("a"), csv, "--out", path("x.csv"), "--state", "lstm.7.c"}).err,
              Names("lstm.7.c", "lstm.0.c, lstm.0.h, lstm.1.c, lstm.1.h"));
  EXPECT_THAT(lmx({"features", path("a"), csv, "--out", path("x.csv"), "--text-column", "text"}).err,
              Names("'text'", "label, sentence"));
  const Outcome o =
      good({"probe", path("a"), "--train", csv, "--histogram", path("u.svg"), "--save", path("p"), "--bag-of-bytes"});
  EXPECT_THAT(o.out, Names("texts train 192, valid 24, test 24; units 12", "strongest_unit "));
  EXPECT_GT(number_behind(o.out, "bag_of_bytes l2 test_accuracy_percent"), 90);
  EXPECT_GT(number_behind(o.out, "l2 test_accuracy_percent"), 60);
  EXPECT_THAT(read_file(path("u.svg")), Names("<svg", "label 1"));
  const Outcome again = good({"probe", "--train", path("p-train.safetensors"), "--valid", path("p-valid.safetensors"),
                              "--test", path("p-test.safetensors"), "--penalty", "l2"});
  EXPECT_EQ(number_behind(again.out, "l2 test_accuracy_percent"), number_behind(o.out, "l2 test_accuracy_percent"));
  EXPECT_THAT(lmx({"probe", path("a")}).err, Names("--corpus NAME"));
  const Outcome none =
      good({"probe", path("a"), "--train", csv, "--penalty", "l1", "--c", "1e-9", "--histogram", path("none.svg")});
  EXPECT_THAT(none.out, AllOf(Names("strongest_unit none"), Not(HasSubstr("written"))));
}

// A model without cells has one state for both names. Texts longer than one forward pass carry the state to the next
// one.
TEST_F(BytesRun, StatesOfOtherModels) {
  for (const std::string model :
       {"{name: rhn, embedding: 8, cells: 12, depth: 3}", "{name: mlstm, embedding: 8, cells: 12}"}) {
    const bool rhn = model.find("rhn") != std::string::npos;
    const std::string dir = rhn ? "rhn" : "mlstm", state = rhn ? "rhn.0.s" : "mlstm.0.c";
    ASSERT_THAT(run(dir, {"~model", "+model=" + model}), Succeeds());
    std::string text;
    for (int i = 0; i < 60; ++i) text += "good film " + std::to_string(i) + ", ";
    write("long.csv", "label,sentence\n1,\"" + text + "\"\n0,bad\n");
    for (const char* batch : {"1", "2"})
      EXPECT_THAT(good({"features", path(dir), path("long.csv"), "--out", path("f" + std::string(batch) + ".csv"),
                        "--batch", batch})
                      .out,
                  HasSubstr("state " + state + " after"));
    EXPECT_LT(farthest(read_file(path("f1.csv")), read_file(path("f2.csv"))), 1e-5);
    // The value after the last byte is the feature.
    const Outcome map = good({"features", path(dir), "--heatmap", path("m.html"), "--unit", "5", "--text", text});
    std::istringstream row(read_file(path("f1.csv")));
    std::string line, field;
    std::getline(row, line);
    std::getline(row, line);
    std::istringstream fields(line);
    for (int i = 0; i < 7; ++i) std::getline(fields, field, ',');
    EXPECT_NEAR(number_behind(map.out, "last value"), std::stod(field), 1e-4) << line;
    EXPECT_THAT(good({"probe", path(dir), "--train", path("reviews.csv")}).out, HasSubstr("state " + state));
    const auto drawn = [&](const char* hold) {
      return good({"generate", path(dir), "--tokens", "40", "--hold", hold}).out;
    };
    EXPECT_NE(drawn("3=9"), drawn("3=-9"));
    EXPECT_THAT(lmx({"features", path(dir), path("long.csv"), "--out", path("x.csv"), "--state", "cel"}).err,
                Names("cel state", dir));
  }
}

TEST_F(BytesRun, WhatAProbeReads) {
  ASSERT_THAT(run("a", {"train.steps=2"}), Succeeds());
  const auto part = [&](const std::string& name, int rows, const char* bad, const char* good) {
    std::string csv = "label,sentence\n";
    for (int i = 0; i < rows; ++i)
      csv += i % 2 ? std::string(good) + ",good film\n" : std::string(bad) + ",a dull one\n";
    write(name, csv);
    return path(name);
  };
  const std::string train = part("train.csv", 100, "neg", "pos"), test = part("test.csv", 30, "pos", "pos");
  EXPECT_THAT(good({"probe", path("a"), "--train", train, "--test", test}).out,
              HasSubstr("texts train 90, valid 10, test 30;"));
  EXPECT_THAT(good({"probe", path("a"), "--train", train, "--valid", train, "--test", test}).out,
              HasSubstr("texts train 100, valid 100, test 30;"));
  const auto error = [&](Words words) {
    words.insert(words.begin(), "probe");
    const Outcome o = lmx(words);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_EQ(o.out, "") << "the error must come before any work";
    return o.err;
  };
  EXPECT_THAT(error({path("a"), "--train", train, "--test", part("other.csv", 4, "pos", "0")}),
              Names("other.csv:3:", "'0'", "'neg'", "'pos'"));
  EXPECT_THAT(error({path("a"), "--train", train, "--classes", "pos"}), Names("--classes", "two"));
  EXPECT_THAT(error({path("a"), "--corpus", "sst2", "--test", test}), Names("--test", "--corpus"));
  EXPECT_THAT(error({path("a"), "--test", test}), Names("--test", "--train"));
  EXPECT_THAT(error({path("a"), "--train", train, "--valid", test, "--seed", "2"}), Names("--seed"));
  for (const char* option : {"--state", "--batch", "--save", "--text-column", "--checkpoint", "--classes"})
    EXPECT_THAT(error({"--train", "t.csv", "--valid", "v.csv", option, "1"}), Names(option, "run"));
  EXPECT_THAT(error({path("a"), "--train", train, "--c", "0"}), Names("[probe] C"));
  EXPECT_THAT(error({path("a"), "--train", train, "--penalty", "l3"}), Names("'l3'"));
  EXPECT_THAT(error({path("a"), "--train", train, "--histogram", path("no/u.svg")}),
              Names("--histogram:", path("no/u.svg"), "folder", path("no")));
  EXPECT_THAT(error({path("a"), "--train", train, "--save", path("")}), Names("[probe] --save", "sst2"));
}

TEST_F(BytesRun, OptionsOfTheOtherUseOfFeatures) {
  const auto error = [&](const Words& words) {
    const Outcome o = lmx(joined({"features", path("a")}, words));
    EXPECT_EQ(o.code, 2);
    return o.err;
  };
  EXPECT_THAT(error({path("reviews.csv"), "--out", "f.csv", "--unit", "3"}), Names("--unit", "--heatmap"));
  EXPECT_THAT(error({path("reviews.csv"), "--heatmap", "m.html", "--unit", "3", "--text", "x"}),
              Names("TEXTS", "--heatmap"));
  EXPECT_THAT(error({path("reviews.csv"), "--out", "f.csv", "--no-labels", "--label-column", "x"}),
              Names("--label-column", "--no-labels"));
}

TEST_F(BytesRun, AUnitOverAText) {
  ASSERT_THAT(run("a"), Succeeds());
  good({"features", path("a"), "--heatmap", path("m.html"), "--unit", "3", "--text", "so <b>x</b>y\xC3\xA9 & z"});
  const std::string page = read_file(path("m.html"));
  EXPECT_THAT(page, AllOf(Names("unit 3", "lstm.1.c", "&amp;"), Not(HasSubstr("<b>"))));
  size_t cells = 0;
  for (size_t at = page.find("title='"); at != std::string::npos; at = page.find("title='", at + 1)) ++cells;
  EXPECT_EQ(cells, std::string("\n so x ye & z ").size());
  EXPECT_THAT(lmx({"features", path("a"), "--heatmap", path("m.html"), "--text", "x"}).err, Names("--unit N"));
}

TEST_F(BytesRun, MistakesAreNamed) {
  const auto error = [&](const Words& more) {
    const Outcome o = run("x", more);
    EXPECT_EQ(o.code, 2);
    return o.err;
  };
  EXPECT_THAT(error({"batcher.sequence_length=2000"}), Names("[tbptt]", "6 shards", "2001"));
  EXPECT_THAT(error({"batcher.shards=5000"}), Names("5000 shards", "train split"));
  EXPECT_THAT(error({"data.field=text"}), Names("'text'", "label, sentence"));
  EXPECT_THAT(error({"data.tokens=words", "data.preprocess=none", "stop.when='valid.bpc <= 2'"}),
              Names("words", "valid.nll_bit"));
  EXPECT_THAT(error({"data.tokens=words", "data.preprocess=none", "++data.vocab_size=10"}), Names("keeps none"));
  ASSERT_THAT(run("chars", {"data.tokens=chars", "++data.vocab_size=12", "train.steps=2"}), Succeeds());
  const std::string drawn = good({"generate", path("chars"), "--tokens", "200"}).out;
  EXPECT_EQ(drawn.size(), 201U) << "each of these characters has one byte";
  EXPECT_EQ(drawn.find("<unk>"), std::string::npos);
  ASSERT_THAT(run("a", {"train.steps=2"}), Succeeds());
  EXPECT_THAT(lmx({"eval", path("chars"), "--checkpoint", path("a/checkpoints/step-2")}), Refuses("256 entries"));
}

// Dry runs of the character recipes: the numbers of parameters in the papers, and desk twins that compose.

// Runs without corpora: the plan does not depend on them, and the missing ones are reported.
std::string dry_run(const std::string& recipe, Words more = {}) {
  const Outcome o = run_lmx(joined({"run", source_path("/recipes/") + recipe + ".yaml", "--dry-run"}, more),
                            {{"LMX_DATA_DIR", missing_path()}, {"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(o.code, 2) << recipe << ": " << o.err;  // the corpora are missing
  return o.out;
}

TEST(CharacterRecipes, ParametersOfPuri) {
  EXPECT_THAT(dry_run("puri_amazon_4096"), Names("parameters 86,319,360", "40,960", "86,278,400", "one of 128",
                                                 "256 of the 32768", "'amazon_reviews'"));
  EXPECT_THAT(dry_run("puri_amazon_8192"), Names("340,312,320", "one of 8", "96 of the 768"));
}

TEST(CharacterRecipes, ParametersOfPatwary) {
  EXPECT_THAT(dry_run("patwary_char_1b"), Names("parameters 71,034,978", "153,600 tokens", "'one_billion_word'"));
  EXPECT_THAT(dry_run("patwary_char_gutenberg"), HasSubstr("parameters 71,034,978"));
  EXPECT_THAT(dry_run("patwary_tieba"), Names("vocabulary 15,437", "one of 6", "128 of the 768", "no public copy"));
}

TEST(CharacterRecipes, DeskTwins) {
  for (const char* recipe :
       {"puri_amazon_4096", "puri_amazon_8192", "puri_mixed", "puri_width", "puri_convergence", "sentiment_transfer"})
    EXPECT_THAT(dry_run(recipe, {"puri/scale=desk"}), Names("'movie_reviews'")) << recipe;
  EXPECT_THAT(dry_run("patwary_char_1b", {"patwary/scale=desk"}), HasSubstr("vocabulary 98"));
  EXPECT_THAT(dry_run("patwary_tieba", {"patwary/scale=desk"}), HasSubstr("vocabulary 13,000"));
}

// A recipe with every default, without its provenance.
std::string resolved(const std::string& recipe, const std::string& scale) {
  const Outcome o = run_lmx({"config", source_path("/recipes/") + recipe + ".yaml", scale});
  EXPECT_EQ(o.code, 0) << recipe << ": " << o.err;
  return o.out.substr(0, o.out.find("\nprovenance:"));
}

TEST(CharacterRecipes, TwinsDifferWhereTheirRecipesDo) {
  const std::map<std::string, Words> families{
      {"puri/scale",
       {"puri_amazon_4096", "puri_amazon_8192", "puri_mixed", "puri_width", "puri_convergence", "sentiment_transfer"}},
      {"patwary/scale", {"patwary_char_1b", "patwary_char_gutenberg", "patwary_amazon", "patwary_tieba"}}};
  for (const auto& [group, recipes] : families) {
    std::map<std::string, std::string> twins;
    for (const std::string& recipe : recipes) {
      const auto [twin, fresh] = twins.emplace(resolved(recipe, group + "=desk"), recipe);
      if (fresh) continue;
      EXPECT_EQ(resolved(recipe, group + "=paper"), resolved(twin->second, group + "=paper"))
          << recipe << " and " << twin->second << " differ, their desk twins do not";
    }
  }
}

TEST(CharacterRecipes, TwinsKeepWhatTheirRecipesSay) {
  const auto desk = [](const std::string& recipe) { return resolved(recipe, "puri/scale=desk"); };
  EXPECT_THAT(desk("puri_amazon_4096"), Names("\n  cells: 512\n", "\n  lr: 0.003\n"));
  EXPECT_THAT(desk("puri_amazon_8192"), Names("\n  cells: 1024\n", "\n  lr: 0.00078\n"));
  EXPECT_THAT(desk("puri_width"), HasSubstr("\n  lr: 0.002\n"));
  EXPECT_THAT(desk("sentiment_transfer"), Names("\n  global: 16\n", "\n  lr: 5e-04\n"));
}

// Every point is composed and checked; then the missing corpora are reported.
TEST(CharacterRecipes, SweepsAtThePapersSizeAndAtADesks) {
  const auto points = [](const std::string& recipe, const Words& more = {}) {
    const Outcome o = run_lmx(joined({"sweep", source_path("/recipes/") + recipe + ".yaml", "--dry-run"}, more),
                              {{"LMX_DATA_DIR", missing_path()}, {"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(o.code, 2) << recipe << ": " << o.err;
    return o.out;
  };
  EXPECT_THAT(points("puri_lr_grid"), Names("puri_lr_grid: 20 points", "19-puri_batch=32768-puri_rule=fixed_3e-3",
                                            "86,319,360", "amazon_reviews"));
  const auto desk = [&](const std::string& recipe) { return points(recipe, {"puri/scale=desk"}); };
  EXPECT_THAT(points("puri_width"), Names("puri_width: 3 points", "86,319,360"));
  EXPECT_THAT(desk("puri_width"), Names("puri_width: 4 points", "3-cells=512"));
  EXPECT_THAT(points("puri_mixed"), Names("puri_mixed: 3 points", "puri_mixed=mp_2048"));
  EXPECT_THAT(desk("puri_mixed"), Names("puri_mixed: 3 points", "puri_mixed=desk_mp_2x"));
  EXPECT_THAT(points("puri_convergence"), HasSubstr("puri_convergence: 5 points"));
  EXPECT_THAT(desk("puri_convergence"), Names("3 points", "puri_convergence=desk_64"));
  EXPECT_THAT(points("patwary_seeding"), Names("patwary_seeding: 5 points", "power_0.64", "one_billion_word"));
}

}  // namespace
}  // namespace lmx_test
