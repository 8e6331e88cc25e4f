// data: {name: text} from the recipe to mapped tokens: cache, damage, two processes at once, corpora, messages.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "app/corpora/corpora.h"
#include "app/datasets/open.h"
#include "app/prepare/cache.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "fixture.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class TextData : public lmx_test::DataTest {
 protected:
  TextData() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the cat number " + std::to_string(i % 7) + " sat\n";
    write("a.txt", text);
  }
  Node data(const std::string& more = "vocab_size: 8\n") const { return text_data(path("a.txt"), more); }
  // What stands in the cache directory, sorted.
  std::vector<std::string> cached() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path("cache"))) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(TextData, OpensAndReports) {
  const Dataset d = open_dataset(data("vocab_size: 8\nvalid_fraction: 0.2\n"));
  EXPECT_EQ(d.vocabulary.size(), 8);
  EXPECT_EQ(d.vocabulary.word(0), "<unk>");
  EXPECT_EQ(d.types, 11);
  EXPECT_GT(d.oov, 0.05);
  EXPECT_LT(d.oov, 0.2);
  EXPECT_EQ(d.test.size(), 0);
  EXPECT_EQ((d.train.size() + d.valid.size()) % 6, 0);
  EXPECT_EQ(d.train.size() + d.valid.size(), 300 * 6);
  EXPECT_THAT(d.report, Names("8 entries", "of 11 types", "first lost word"));
  EXPECT_EQ(d.unit, "word");
  EXPECT_FALSE(d.true_perplexity.has_value());
}

TEST_F(TextData, BuildsOnceAndKeysByContentAndSettings) {
  const Dataset first = open_dataset(data());
  const auto written = fs::last_write_time(first.directory + "/train.bin");
  const Dataset again = open_dataset(data("vocab_size: 8\nthreads: 3\n"));  // threads do not matter
  EXPECT_EQ(again.directory, first.directory);
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(fs::last_write_time(first.directory + "/train.bin"), written);
  EXPECT_NE(open_dataset(data("vocab_size: 7\n")).hash, first.hash);
  EXPECT_NE(open_dataset(data("vocab_size: 8\nsplit_seed: 2\n")).hash, first.hash);
  fs::rename(path("a.txt"), path("b.txt"));  // neither does the name
  EXPECT_EQ(open_dataset(text_data(path("b.txt"), "vocab_size: 8\n")).hash, first.hash);
  write("b.txt", read("b.txt") + "one more line\n");
  EXPECT_NE(open_dataset(text_data(path("b.txt"), "vocab_size: 8\n")).hash, first.hash);
}

TEST_F(TextData, OwnValidationAndTestFiles) {
  write("v.txt", "the dog\n");
  write("t.txt", "sat sat\n");
  const Dataset d = open_dataset(data("vocab_size: 8\nvalid_files: [" + path("v.txt") + "]\ntest_files: [" +
                                      path("t.txt") + "]\nend_of_line: false\n"));
  EXPECT_EQ(d.train.size(), 300 * 5);  // none drawn away
  EXPECT_EQ(words_of(d.valid, d.vocabulary), "the <unk>");
  EXPECT_EQ(words_of(d.test, d.vocabulary), "sat sat");
}

TEST_F(TextData, AllTypes) {
  const Dataset d = open_all_types(data());
  EXPECT_EQ(d.vocabulary.size(), 11 + 2);
  EXPECT_EQ(d.oov, 0);
  EXPECT_EQ(std::count(d.train.tokens().begin(), d.train.tokens().end(), Vocabulary::kEos), 0);
}

TEST_F(TextData, DamageNamesTheDirectoryToDelete) {
  const std::string directory = open_dataset(data()).directory;
  const std::string name = fs::relative(directory, folder_).string();
  for (const char* file : {"train.bin", "valid.bin", "test.bin", "vocab.tsv", "meta.json"}) {
    const std::string good = read(name + "/" + file);
    std::vector<std::string> damages{"", good.substr(0, good.size() / 2)};
    if (file != std::string("meta.json")) {  // a flipped bit in a comment-like field of it may be harmless
      damages.push_back(good);
      damages.back()[good.size() / 2] = static_cast<char>(damages.back()[good.size() / 2] ^ 4);
    }
    for (const std::string& bad : damages) {
      write(name + "/" + file, bad);
      EXPECT_THAT(user_error([&] { open_dataset(data()); }), Names("damaged", directory)) << file;
    }
    fs::remove(directory + "/" + file);
    EXPECT_THAT(user_error([&] { open_dataset(data()); }), Names(directory)) << file;
    write(name + "/" + file, good);
  }
  EXPECT_NO_THROW(open_dataset(data()));
  fs::remove_all(directory);
  EXPECT_NO_THROW(open_dataset(data()));
}

TEST_F(TextData, FailedPreparationLeavesNothing) {
  EXPECT_THAT(user_error([&] { open_dataset(data("vocab_size: 100\n")); }), Names("vocab_size 100", "11 distinct"));
  for (const std::string& name : cached()) EXPECT_TRUE(name.ends_with(".lock")) << name;
}

TEST_F(TextData, FullDiskIsARunErrorAndLeavesNothing) {
  EXPECT_THAT(error_on_full_disk(1000, [&] { open_dataset(data()); }), StartsWith("[data] cannot write"));
  for (const std::string& name : cached()) EXPECT_TRUE(name.ends_with(".lock")) << name;
  EXPECT_NO_THROW(open_dataset(data()));
}

TEST_F(TextData, TwoProcessesAtOncePrepareOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i)
    children.push_back(start_child([&] {
      const Dataset d = open_dataset(data());
      return d.train.size() + d.valid.size() == 300 * 6 ? 0 : 1;
    }));
  for (const pid_t child : children) EXPECT_EQ(exit_code_of(child), 0);
  EXPECT_EQ(cached().size(), 2u);  // the directory and its lock
}

TEST_F(TextData, BuildOnceRunsTheBuilderOnceAmongThreads) {
  std::atomic<int> built{0}, inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      build_once(path("cache"), "thing", [&](const std::string& directory) {
        EXPECT_EQ(++inside, 1);
        std::ofstream(directory + "/file") << "done";
        ++built;
        --inside;
      });
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(built, 1);
  EXPECT_EQ(read("cache/thing/file"), "done");
}

TEST_F(TextData, AWaiterSaysSoAndGoesOnWhenTheBuilderDies) {
  fs::create_directories(path("cache"));
  const int lock = open(path("cache/thing.lock").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  write("cache/thing.tmp-123/half", "half-written");  // as a killed process leaves it
  set_log_file(path("log.txt"));
  std::thread waiter([&] {
    build_once(path("cache"), "thing", [](const std::string& directory) { std::ofstream(directory + "/file") << "x"; });
  });
  while (read("log.txt").find("another process is preparing") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(fs::exists(path("cache/thing")));
  close(lock);
  waiter.join();
  set_log_file("");
  EXPECT_EQ(read("cache/thing/file"), "x");
  EXPECT_FALSE(fs::exists(path("cache/thing.tmp-123")));
}

TEST_F(TextData, MessagesAboutTheRecipe) {
  auto error = [&](const std::string& yaml) {
    return user_error([&] { open_dataset(parse_yaml(yaml, "recipe.yaml")); });
  };
  const std::string text = "name: text\nvocab_size: 10\n";
  EXPECT_THAT(error("vocab_size: 10\n"), Names("recipe.yaml:1:1", "text", "parallel", "synthetic"));
  EXPECT_THAT(error("name: txt\n"), Names("recipe.yaml:1:7", "'text'?"));
  EXPECT_THAT(error(text), Names("recipe.yaml:1:1", "`corpus`"));
  EXPECT_THAT(error(text + "corpus: ptb\nfiles: [x.txt]\n"), Names("recipe.yaml:4:8", "both"));
  EXPECT_THAT(error(text + "corpus: gutenburg\n"), Names("recipe.yaml:3:9", "'gutenberg'?"));
  EXPECT_THAT(error(text + "corpus: paracrawl\n"), Names("recipe.yaml:3:9", "parallel"));
  EXPECT_THAT(error(text + "files: [x.txt]\nvalid_fraction: 0.8\ntest_fraction: 0.3\n"),
              Names("recipe.yaml:4:17", "0.8", "0.3"));
  EXPECT_THAT(error(text + "files: [x.txt]\nvalid_fractoin: 0.8\n"), Names("valid_fraction"));
  EXPECT_THAT(error("name: text\nfiles: [x.txt]\n"), Names("vocab_size"));
  EXPECT_THAT(error("name: text\nvocab_size: 2\nfiles: [x.txt]\n"), Names("vocab_size"));
  EXPECT_THAT(error("name: text\nvocab_size: -5\nfiles: [x.txt]\n"), Names("-5"));
  EXPECT_THAT(error("name: synthetic\nvocab_size: 10\nbranching: 20\n"), Names("recipe.yaml:3:12", "branching 20"));
  EXPECT_THAT(user_error([] { check_dataset(parse_yaml("name: synthetic\nclasses: 5000\n", "r")); }),
              Names("r:2:10", "classes 5000"));
}

TEST_F(TextData, CheckFindsWithoutPreparing) {
  EXPECT_THAT(check_dataset(data()).findings, IsEmpty());
  EXPECT_FALSE(fs::exists(path("cache")));
  EXPECT_THAT(check_dataset(text_data(path("none.txt"), "vocab_size: 8\n")).findings, ElementsAre(Names("none.txt")));
  const DataCheck made_up = check_dataset(parse_yaml("name: synthetic\ntrain_tokens: 700\n", "r"));
  EXPECT_THAT(made_up.findings, IsEmpty());
  EXPECT_EQ(made_up.train_tokens, 700);
}

// The points of a sweep share their data, so it is checked once for all of them, and again for other data.
TEST_F(TextData, ChecksAreSharedByEqualData) {
  DatasetChecks checks;
  const DataCheck& small = checks.of(data("vocab_size: 8\n"));
  EXPECT_EQ(&checks.of(data("vocab_size: 8\n")), &small);
  EXPECT_THAT(small.findings, IsEmpty());
  EXPECT_THAT(checks.of(data("vocab_size: 100\n")).findings, ElementsAre(Names("distinct")));
  for (int fraction = 1; fraction < 40; ++fraction)  // more than are kept
    EXPECT_EQ(checks.of(data(str("vocab_size: 8\nvalid_fraction: 0.", fraction + 10, "\n"))).train_tokens,
              check_dataset(data(str("vocab_size: 8\nvalid_fraction: 0.", fraction + 10, "\n"))).train_tokens);
}

// The same numbers and words, whether counted or remembered, as opening the data gives.
TEST_F(TextData, CheckKnowsTokensAndTypes) {
  const std::string vocabularies[] = {"vocab_size: 8\n", "vocab_size: 13\nend_of_line: false\nvalid_fraction: 0.3\n"};
  for (const char* when : {"counted", "remembered"}) {
    for (const std::string& yaml : vocabularies) {
      const DataCheck check = check_dataset(data(yaml));
      EXPECT_THAT(check.findings, IsEmpty());
      const bool prepared = when == std::string("remembered");
      EXPECT_EQ(fs::exists(path("cache")), prepared);
      if (prepared) {
        EXPECT_EQ(check.train_tokens, open_dataset(data(yaml)).train.size());
      } else {
        EXPECT_GT(check.train_tokens.value_or(0), 300 * 3);
      }
    }
    const DataCheck large = check_dataset(data("vocab_size: 100\n"));
    EXPECT_EQ(large.findings, std::vector{user_error([&] { open_dataset(data("vocab_size: 100\n")); })});
    fs::remove_all(path("cache"));
    for (const std::string& yaml : vocabularies) open_dataset(data(yaml));
  }
  write("bad.txt", "one \xff\n");
  EXPECT_THAT(check_dataset(text_data(path("bad.txt"), "vocab_size: 3\n")).findings, ElementsAre(Names("bad.txt:1")));
}

// Text too large to count: known once it was prepared, with whatever vocabulary; not when it has changed since.
TEST_F(TextData, CheckOfMuchTextRemembersItsPreparation) {
  const std::string line =
      "all the same words again and again until the file is large " + std::string(4000, 'x') + "\n";
  std::string text;
  while (text.size() <= (8u << 20)) text += line;
  write("a.txt", text);
  EXPECT_EQ(check_dataset(data()).train_tokens, std::nullopt);
  const int64_t tokens = open_dataset(data("vocab_size: 8\n")).train.size();
  EXPECT_EQ(check_dataset(data("vocab_size: 5\n")).train_tokens, tokens);
  EXPECT_THAT(check_dataset(data("vocab_size: 50\n")).findings, ElementsAre(Names("11 distinct")));
  EXPECT_EQ(check_dataset(data("vocab_size: 8\nlower_case: false\n")).train_tokens, std::nullopt);
  text[0] = 'A';
  write("a.txt", text);
  EXPECT_EQ(check_dataset(data()).train_tokens, std::nullopt);
  const std::string directory = open_dataset(data()).directory;
  for (const char* damaged : {"{}", "{\"identity\": {\"files\": 3}}", "no json"}) {
    write(fs::relative(directory, folder_).string() + "/meta.json", damaged);
    EXPECT_EQ(check_dataset(data()).train_tokens, std::nullopt) << damaged;
  }
}

TEST_F(TextData, VocabularySizeAndFullConfig) {
  EXPECT_EQ(vocabulary_size(data()), 8);
  EXPECT_EQ(vocabulary_size(parse_yaml("name: synthetic\n", "r")), 2000);
  const Node full = full_data_config(data());
  EXPECT_EQ(full.entries.front().first, "name");
  EXPECT_EQ(full.find("valid_fraction")->text, "0.01");
  EXPECT_EQ(full.find("vocab_size")->text, "8");
  EXPECT_EQ(full_data_config(full).keys(), full.keys());
}

// Corpora are found below LMX_DATA_DIR; these tests put small ones there.
class CorpusData : public TextData {
 protected:
  Node corpus(const std::string& name) const {
    return parse_yaml("name: text\nvocab_size: 3\ncorpus: " + name + "\ncache_dir: " + path("cache") + "\n",
                      "recipe.yaml");
  }
  const lmx_test::CorporaIn corpora_{path("nowhere") + ":" + path("corpora")};
};

TEST_F(CorpusData, EveryCorpusIsDescribedAndMissingOnesSayHow) {
  for (const Corpus& c : corpora()) {
    for (const std::string* text : {&c.name, &c.what, &c.source, &c.licence, &c.get, &c.folder})
      EXPECT_FALSE(text->empty()) << c.name;
    EXPECT_THAT(c.source, HasSubstr("http")) << c.name;
    for (const auto& [file, sum] : c.sha256) EXPECT_EQ(sum.size(), 64u) << c.name << " " << file;
    EXPECT_EQ(&find_corpus(c.name), &c);
    const CorpusPlace place = locate(c);
    EXPECT_THAT(place.problem,
                Names("'" + c.name + "'", path("nowhere/" + c.folder), path("corpora/" + c.folder), c.get));
    EXPECT_THAT(place.problem, Not(HasSubstr("\n")));
  }
}

TEST_F(CorpusData, DryRunSaysWhichCorpusIsMissing) {
  EXPECT_THAT(check_dataset(corpus("one_billion_word")).findings,
              ElementsAre(Names("one_billion_word'", "statmt.org")));
  EXPECT_THAT(user_error([&] { open_dataset(corpus("one_billion_word")); }), Names("one_billion_word'"));
}

TEST_F(CorpusData, OfficialSplitsAndChecksumsOfFirstUse) {
  write("corpora/ptb/ptb.train.txt", "the <unk> N the\n");
  write("corpora/ptb/ptb.valid.txt", "the N\n");
  write("corpora/ptb/ptb.test.txt", "N the\n");
  const Dataset d = open_dataset(corpus("ptb"));
  EXPECT_EQ(words_of(d.train, d.vocabulary), "the <unk> <unk> the </s>");
  EXPECT_EQ(words_of(d.valid, d.vocabulary), "the <unk> </s>");
  EXPECT_EQ(words_of(d.test, d.vocabulary), "<unk> the </s>");
  EXPECT_THAT(d.source_note, HasSubstr("ptb"));
  EXPECT_THAT(read("cache/checksums/ptb.json"), HasSubstr("ptb.train.txt"));
  write("corpora/ptb/ptb.test.txt", "the the\n");
  EXPECT_THAT(user_error([&] { open_dataset(corpus("ptb")); }), Names("ptb.test.txt", "SHA-256", "checksums/ptb.json"));
}

TEST_F(CorpusData, ChangedCopyOfAKnownCorpus) {
  write("corpora/tinyshakespeare/input.txt", "not the plays\n");
  EXPECT_THAT(user_error([&] { open_dataset(corpus("tinyshakespeare")); }), Names("86c4e6aa", "data.files"));
}

TEST(RealCorpus, TinyShakespeare) {
  if (!getenv("LMX_DATA_DIR") || !locate(find_corpus("tinyshakespeare")).problem.empty()) {
    GTEST_SKIP() << "tinyshakespeare is not below LMX_DATA_DIR";
  }
  const lmx_test::TempFolder cache;
  const Dataset d = open_dataset(parse_yaml(
      "name: text\nvocab_size: 5000\ncorpus: tinyshakespeare\ncache_dir: " + cache.root().string() + "\n", "r"));
  EXPECT_EQ(d.vocabulary.size(), 5000);
  EXPECT_NEAR(d.oov, 0.04, 0.03);
  EXPECT_LT(d.vocabulary.id("the"), 10);
  EXPECT_GT(d.train.size(), 200000);
}

}  // namespace
}  // namespace lmx::app
