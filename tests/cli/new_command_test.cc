// lmx new: recipes for the user's own text run unchanged; shipped recipes are found from any folder.
#include <random>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

// Sentences of a small artificial grammar, which any model learns in seconds.
std::string sentences(int lines, bool german = false) {
  const std::vector<std::array<const char*, 2>> subjects{{"the old man", "der alte Mann"},
                                                         {"a small dog", "ein kleiner Hund"},
                                                         {"my sister", "meine Schwester"},
                                                         {"the king", "der Konig"}};
  const std::vector<std::array<const char*, 2>> verbs{{"sees", "sieht"}, {"likes", "mag"}, {"follows", "jagt"}};
  const std::vector<std::array<const char*, 2>> objects{{"the red house", "das rote Haus"},
                                                        {"a tree", "einen Baum"},
                                                        {"the sea", "das Meer"},
                                                        {"seven birds", "sieben Vogel"}};
  std::mt19937 random(7);
  const auto one = [&](const auto& list) { return list[random() % list.size()][german]; };
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += one(subjects) + std::string(" ") + one(verbs);
    text += std::string(" ") + one(objects) + " .\n";
  }
  return text;
}

class NewCommand : public RunTest {
 protected:
  // Runs `lmx new` with these words in the test's folder.
  Outcome make(const std::string& words) const { return shell("lmx new " + words); }
  Outcome shell(const std::string& script) const {
    return run_process({"/bin/bash", "-c", "cd '" + folder_.string() + "' && " + script}, environment_with_lmx());
  }
  std::string recipe(const std::string& name) const { return read_file(folder_ / name / (name + ".yaml")); }
};

TEST_F(NewCommand, EnglishTextBecomesAModelOfWordsThatTrains) {
  write("book.txt", sentences(20'000));
  const Outcome o = make("book --text book.txt --minutes 0.2");
  ASSERT_THAT(o, Succeeds());
  const std::string yaml = recipe("book");
  EXPECT_THAT(yaml, Names("\n  tokens: words\n", "[" + path("book.txt") + "]", "20,000 lines"));
  EXPECT_THAT(o.out, HasSubstr("lmx run book/book.yaml --dry-run\n"));
  EXPECT_THAT(shell("lmx run book/book.yaml --dry-run"), Prints("data: available"));
  for (const char* folder : {"book", "book/"})
    EXPECT_THAT(shell(lmx::str("lmx run ", folder)), Refuses("is a folder", "'book/book.yaml'?"));
  EXPECT_THAT(shell("lmx run book/book.yaml train.steps=5 run.dir=r"), Prints("valid ppl "));
}

// Case and punctuation come back from a model of words.
TEST_F(NewCommand, TextKeepsItsCaseAndItsPunctuation) {
  const std::string sentence = "The King, he said, doesn't see (my) Tree.";
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 2 ? sentence + "\n" : sentences(1);
  write("book.txt", text);
  ASSERT_THAT(make("book --text book.txt --tokens words"), Succeeds());
  EXPECT_THAT(recipe("book"), Names("keeps its case", "`lmx generate` joins it again", "\n  lower_case: false\n"));
  ASSERT_THAT(shell("lmx run book/book.yaml train.steps=2 run.dir=r"), Succeeds());
  const std::string generate = "lmx generate r --tokens 1 --prompt \"" + sentence + "\"";
  EXPECT_THAT(shell(generate).out, testing::StartsWith(sentence));
  EXPECT_THAT(shell(generate + " --tokenized").out, testing::StartsWith("The King , he said , "));
}

TEST_F(NewCommand, TextWithoutBlanksBecomesAModelOfCharacters) {
  std::string text;
  std::mt19937 random(3);
  for (int line = 0; line < 400; ++line) {
    for (int i = 0; i < 20; ++i) {
      const char32_t c = 0x4E00 + random() % 50;
      text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
               static_cast<char>(0x80 | (c & 63))};
    }
    text += "\n";
  }
  write("han.txt", text);
  ASSERT_THAT(make("han --text han.txt"), Succeeds());
  EXPECT_THAT(recipe("han"), Names("\n  tokens: chars\n", "\n  vocab_size: 52\n"));
  EXPECT_THAT(shell("lmx run han/han.yaml train.steps=3 run.dir=r"), Prints("valid bpc "));
}

TEST_F(NewCommand, ATextBecomesAModelOfSubwords) {
  write("book.txt", sentences(3000));
  ASSERT_THAT(make("book --text book.txt --tokens subwords"), Succeeds());
  EXPECT_THAT(recipe("book"), Names("\n  tokens: subwords\n", "\n  document: string\n"));
  const Outcome run = shell("lmx run book/book.yaml train.steps=3 run.dir=r");
  EXPECT_THAT(run, Prints("valid bpb "));
  // Different numbers are different words, but no subwords.
  std::string numbers;
  for (int i = 0; i < 600; ++i) numbers += "number " + std::to_string(i) + " of many\n";
  write("numbers.txt", numbers);
  ASSERT_THAT(make("numbers --text numbers.txt --tokens subwords"), Succeeds());
  EXPECT_THAT(shell("lmx run numbers/numbers.yaml train.steps=1 run.dir=s"), Succeeds());
}

TEST_F(NewCommand, TheFieldOfJsonLinesBecomesAModel) {
  fs::create_directories(folder_ / "web");
  std::string records;
  for (int i = 0; i < 400; ++i)
    records += "{\"id\": " + std::to_string(i) + ", \"body text\": \"" + sentences(1).substr(0, 20) + " " +
               std::to_string(i) + "\"}\n";
  write("web/part.jsonl", records);
  ASSERT_THAT(make("web-model --text web --field 'body text' --tokens subwords"), Prints("400 documents"));
  EXPECT_THAT(recipe("web-model"), Names("\n  field: body text\n", "the 400 documents"));
  EXPECT_THAT(shell("lmx run web-model/web-model.yaml train.steps=1 run.dir=r"), Succeeds());
  for (const std::string text : {"web", "web/part.jsonl"})
    EXPECT_THAT(make("raw --text " + text).err, Names(text, "data.field", "--field")) << text;
  EXPECT_THAT(make("x --pairs a.en b.de --field text").err, HasSubstr("--field is of --text"));
}

TEST_F(NewCommand, LittleTextBecomesASmallModelAndTooLittleIsAnError) {
  write("little.txt", sentences(80));
  ASSERT_THAT(make("little --text little.txt"), Succeeds());
  EXPECT_THAT(recipe("little"), Names("tokens: chars", "cells: 64"));
  EXPECT_THAT(shell("lmx run little/little.yaml train.steps=3 run.dir=r"), Succeeds());

  write("tiny.txt", sentences(10));
  const Outcome tiny = make("tiny --text tiny.txt");
  EXPECT_EQ(tiny.code, 2);
  EXPECT_THAT(tiny.err, Names("tiny.txt", "2,200"));
  std::string one_line = sentences(400);
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  write("line.txt", one_line);
  const Outcome line = make("line --text line.txt");
  EXPECT_EQ(line.code, 2);
  EXPECT_THAT(line.err, Names("line.txt", "1 line"));
  EXPECT_FALSE(fs::exists(folder_ / "tiny"));
  EXPECT_FALSE(fs::exists(folder_ / "line"));
}

TEST_F(NewCommand, BytesAndAnotherTimeAreAsAsked) {
  write("book.txt", sentences(3'000));
  write("latin.txt", sentences(3'000) + "caf\xe9\n");
  EXPECT_THAT(make("chars --text latin.txt --tokens chars"), Refuses("UTF-8"));
  ASSERT_THAT(make("bytes --text latin.txt --tokens bytes"), Succeeds());
  EXPECT_THAT(recipe("bytes"), AllOf(HasSubstr("tokens: bytes"), Not(HasSubstr("vocab_size"))));
  EXPECT_THAT(shell("lmx run bytes/bytes.yaml train.steps=2 run.dir=r"), Succeeds());
  ASSERT_THAT(make("quick --text book.txt --minutes 0.01"), Succeeds());
  EXPECT_THAT(recipe("quick"), HasSubstr("`lmx new --minutes` allows"));
  EXPECT_NE(recipe("quick"), recipe("bytes"));
}

TEST_F(NewCommand, PairsBecomeATranslationModelThatTrains) {
  write("t.en", sentences(600));
  write("t.de", sentences(600, true));
  ASSERT_THAT(make("pairs --pairs t.en t.de"), Succeeds());
  EXPECT_THAT(recipe("pairs"), Names("source_language: en", "target_language: de", "600 pairs"));
  const Outcome run =
      shell("lmx run pairs/pairs.yaml train.steps=4 run.dir=r && echo 'a small dog sees a tree .' | lmx translate r");
  EXPECT_THAT(run, Prints("valid BLEU "));

  write("short.de", sentences(599, true));
  EXPECT_THAT(make("uneven --pairs t.en short.de"), Refuses("600", "599"));
  write("plain.txt", sentences(600, true));
  EXPECT_THAT(make("plain --pairs t.en plain.txt").err, Names("--languages"));
  EXPECT_THAT(make("plain --pairs t.en plain.txt --languages en de"), Succeeds());
}

TEST_F(NewCommand, Multi30kTrains) {
  const char* data = std::getenv("LMX_DATA_DIR");
  if (!data || !fs::exists(fs::path(data) / "multi30k/train.en")) GTEST_SKIP() << "LMX_DATA_DIR has no multi30k";
  const std::string files = data + std::string("/multi30k/train.");
  ASSERT_THAT(make("captions --pairs " + files + "en " + files + "de"), Succeeds());
  EXPECT_THAT(recipe("captions"), Names("29,000 pairs", "vocab_size: 4000", "d: 128"));
  const Outcome run =
      shell("lmx run captions/captions.yaml train.steps=2 train.final_bleu=none train.eval_tokens=500 run.dir=r");
  EXPECT_THAT(run, Succeeds());
}

TEST_F(NewCommand, OverwritesNothing) {
  write("book.txt", sentences(3'000));
  fs::create_directories(folder_ / "mine");
  write("mine/mine.yaml", "mine");
  EXPECT_THAT(make("mine --text book.txt"), Refuses("mine"));
  EXPECT_EQ(read_file(folder_ / "mine/mine.yaml"), "mine");
  EXPECT_EQ(make("new --text book.txt nowhere.txt").code, 2);
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  EXPECT_EQ(make("none").code, 2);
  EXPECT_EQ(make("both --text book.txt --pairs book.txt book.txt").code, 2);
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("lmx-new")));
}

TEST_F(NewCommand, OwnTextTakesTheQuickstartsPlace) {
  write("t.txt", sentences(2'000));
  write("mine.yaml",
        "defaults: [quickstart, {override data: text}, _self_]\n"
        "data: {files: [t.txt], vocab_size: 20}\n"
        "train: {steps: 3}\n");
  EXPECT_THAT(shell("lmx run mine.yaml run.dir=r"), Prints("valid ppl "));
  EXPECT_THAT(shell("lmx config mine.yaml data=parallel --composed"), Succeeds());
}

TEST_F(NewCommand, ShippedRecipesAreFoundLast) {
  fs::create_directories(folder_ / "model");
  write("model/lstm.yaml", "{name: lstm, embedding: 8, cells: 9}\n");
  write("mine.yaml", "defaults:\n  - ott_wmt\n");
  write("other.yaml", "defaults:\n  - model: lstm\n  - optimizer: adam\n");
  EXPECT_THAT(shell("lmx config mine.yaml --composed"), Succeeds());
  EXPECT_THAT(shell("lmx config other.yaml --composed").out, Names("cells: 9", "name: adam"));
  write("none.yaml", "defaults:\n  - modle: lstm\n");
  const Outcome none = shell("lmx config none.yaml");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, Names("none.yaml:2:5", "'model'", "--config-dir"));
  // For a recipe of the shipped folder, that folder is searched once.
  const Outcome again = run_lmx({"config", source_path("/recipes/quickstart.yaml"), "nope=1/2", "--composed"});
  const std::string folder = source_path("/recipes");
  EXPECT_THAT(again.err, Not(HasSubstr(folder + ", " + folder)));
}

// An installed lmx has no folder `recipes` where it is called.
TEST_F(NewCommand, AShippedRecipeIsNamedAsInTheSources) {
  EXPECT_THAT(shell("lmx config recipes/quickstart.yaml --files"), Prints(source_path("/recipes/quickstart.yaml")));
  EXPECT_THAT(shell("lmx sweep recipes/quickstart.yaml optimizer.lr=1,2 --dry-run"), Succeeds());
  for (const std::string name : {"quickstart", "quickstrat.yaml", "recipes/quickstrat.yaml"})
    EXPECT_THAT(shell("lmx config " + name),
                Refuses("error: there is no recipe " + name + " (did you mean 'recipes/quickstart.yaml'?)\n"));
  EXPECT_THAT(shell("lmx config other/quickstart.yaml"), Refuses("other/quickstart.yaml: cannot be read"));
  EXPECT_THAT(shell("lmx run recipes/quickstart.yaml train.steps=1 data.train_tokens=5000 run.dir=r"),
              Prints("\n  lmx run recipes/word_lm_gutenberg.yaml --dry-run\n"));
  fs::create_directories(folder_ / "recipes");
  write("recipes/quickstart.yaml", "{own: 1}\n");
  EXPECT_THAT(shell("lmx config recipes/quickstart.yaml").err,
              HasSubstr("recipes/quickstart.yaml:1:2: unknown key own"));
}

TEST_F(NewCommand, CompletionKnowsIt) {
  EXPECT_THAT(run_lmx({"__complete", "ne"}).out, HasSubstr("new\n"));
  EXPECT_THAT(run_lmx({"__complete", "new", "x", "--to"}).out, HasSubstr("--tokens"));
  EXPECT_THAT(run_lmx({"__complete", "new", "x", "--tokens", ""}).out, Names("chars", "words"));
}

TEST(ConfigInput, LongAndDeepTextsAreRefusedAndNothingIsReadWithoutAnEnd) {
  const std::string quickstart = source_path("/recipes/quickstart.yaml");
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string deep[] = {repeated("[", 20'000) + repeated("]", 20'000),
                              repeated("int(", 20'000) + repeated(")", 20'000),
                              repeated("${", 20'000) + "a" + repeated("}", 20'000), repeated("{a:", 20'000)};
  for (const std::string& value : deep) {
    const Outcome o = run_lmx({"config", quickstart, "++provenance.x=" + value});
    EXPECT_EQ(o.code, 2) << value.substr(0, 8);
    EXPECT_THAT(o.err, Names("override '++provenance.x=")) << value.substr(0, 8);
  }
  const Outcome key = run_lmx({"config", quickstart, "++provenance." + repeated("a.", 20'000) + "b=1"});
  EXPECT_EQ(key.code, 2);
  EXPECT_THAT(run_lmx({"config", "/dev/zero"}), Refuses("/dev/zero", "16 MiB"));
  EXPECT_THAT(run_lmx({"run", quickstart, "--until", "99999999999999999999"}), Refuses("99999999999999999999"));
}

TEST(ConfigInput, AnExcerptShowsTheOverrideOrTheFilesLine) {
  const std::string quickstart = source_path("/recipes/quickstart.yaml");
  EXPECT_THAT(run_lmx({"config", quickstart, "seed='a', b'"}).err, Names("  | seed='a', b'\n"));
  EXPECT_THAT(run_lmx({"config", quickstart, "+optimizer=adam"}).err, Names("  7 |   - optimizer: adam\n"));
}

TEST(ConfigInput, RanksAreThoseOfARun) {
  const std::string quickstart = source_path("/recipes/quickstart.yaml");
  EXPECT_THAT(run_lmx({"config", quickstart, "--ranks", "4"}), Prints("name: virtual", "ranks: 4"));
  EXPECT_EQ(run_lmx({"config", quickstart, "--ranks", "4", "comm=mpi"}).code, 2);
}

TEST_F(RunTest, MessagesNameNoClassOfALibrary) {
  std::filesystem::create_directories(folder_ / "s");
  write("s/sweep.json", "{\"a\": ");
  EXPECT_THAT(run_lmx({"sweep", "--resume", path("s")}),
              Refuses(Names("sweep.json", "line 1"), Not(HasSubstr("json.exception"))));
}

TEST(PluginsNewInATree, TheFirstCommandInstallsIt) {
  const TempFolder folder;
  const Outcome o = run_lmx({"plugins", "new", "sync", "next_steps", "--dir", folder.path("next_steps")});
  ASSERT_THAT(o, Succeeds());
  const std::string prefix = build_path("/installed");
  EXPECT_THAT(o.out, Names("cmake --install " + build_path() + " --prefix " + prefix, "-DCMAKE_PREFIX_PATH=" + prefix));
}

}  // namespace
}  // namespace lmx_test
