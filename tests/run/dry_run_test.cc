// lmx run --dry-run: compares its report on a recipe, its memory and its data with the actual run.
#include <cmath>

#include "app/run/dry_run.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class DryRun : public RunTest {
 protected:
  // Writes a text of `lines` lines of four words, and the tiny recipe with this text.
  void use_text(int lines, const std::string& vocab_size) const {
    std::string text;
    for (int i = 0; i < lines; ++i) text += "one two three four\n";
    write("text.txt", text);
    const std::string recipe = kTinyRecipe, after = recipe.substr(recipe.find("batcher:"));
    write("tiny.yaml", "data: {name: text, files: [" + path("text.txt") +
                           "], valid_fraction: 0.1, vocab_size: " + vocab_size + "}\n" + after);
  }
  std::string dry_run(Words more) const {
    more.push_back("--dry-run");
    const Outcome o = run("a", more);
    const bool ready =
        o.out.find("data: available\n") != std::string::npos && o.out.find("memory: not enough") == std::string::npos;
    EXPECT_EQ(o.code, ready ? 0 : 2) << o.out << o.err;
    EXPECT_EQ(o.err, "");
    EXPECT_FALSE(fs::exists(path("a")));
    return o.out;
  }
};

TEST_F(DryRun, TrainsNothing) {
  EXPECT_THAT(run("a", {"--dry-run"}), Prints("parameters ", "memory (estimate)", "data: available"));
  EXPECT_FALSE(fs::exists(path("a")));
}

TEST_F(DryRun, FullModelOfThePaper) {
  const std::string recipe = source_path("/recipes/patwary_word_1b.yaml");
  auto nowhere = environment();
  nowhere["LMX_DATA_DIR"] = path("");
  Outcome o = run_lmx({"run", recipe, "--dry-run"}, nowhere);
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.out, Names("parameters 111,845,376\n", "one_billion_word'", "download"));
  o = run_lmx({"run", recipe, "--dry-run", "loss.bias=true"}, nowhere);
  EXPECT_THAT(o.out, HasSubstr("parameters 111,945,376\n"));
  o = run_lmx({"run", recipe, "run.dir=" + path("a")}, nowhere);
  EXPECT_THAT(o, Refuses("one_billion_word'"));
}

TEST_F(DryRun, EveryShippedRecipeIsRight) {
  for (const auto& entry : fs::directory_iterator(source_path("/recipes"))) {
    if (entry.path().extension() != ".yaml") continue;
    const Outcome o = run_lmx({"run", entry.path().string(), "--dry-run"}, environment());
    EXPECT_EQ(o.err, "") << entry.path();
    const bool lacks =
        o.out.find("data: not ready") != std::string::npos || o.out.find("memory: not enough") != std::string::npos;
    EXPECT_EQ(o.code, lacks ? 2 : 0) << entry.path();
  }
}

// A matrix of 2,000,000 x 8,000,000 values is larger than the memory of any present machine.
TEST_F(DryRun, MoreMemoryThanTheMachineHas) {
  const Outcome o = run("a", {"model.cells=1000000", "model.projection=0", "--dry-run"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.out, Names("memory: not enough: ", "data: available"));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reserves terabytes of addresses, so it cannot run below a limit of addresses";
#endif
  // The same with a limit of this process; 4 GB of addresses are enough for the tiny recipe.
  const auto limited = [&](const std::string& kilobytes, const std::string& cells) {
    std::string words = "ulimit -v " + kilobytes + "; exec";
    for (const std::string& word : command("a", {"model.cells=" + cells, "model.projection=0", "--dry-run"}))
      words += " '" + word + "'";
    return run_process({"/bin/sh", "-c", words}, environment());
  };
  EXPECT_THAT(limited("4000000", "16"), Succeeds());
  const Outcome small = limited("4000000", "10000");
  EXPECT_EQ(small.code, 2) << small.err;
  EXPECT_THAT(small.out, Names("memory: not enough", "ulimit -v"));
}

TEST_F(DryRun, AWideProjectionNamesItsKeys) {
  EXPECT_THAT(run("a", {"model.cells=4", "--dry-run"}),
              Refuses("model.projection: 8", "the 4 cells", "lower it, or set it to 0"));
}

TEST_F(DryRun, ARunIsWarnedOrRefusedBeforeItAllocates) {
  EXPECT_THAT(run("a", {"memory.budget=0.0001"}), Refuses("memory.budget", "100 kB", "The largest items: "));
  EXPECT_FALSE(fs::exists(path("a")));
  const Outcome ranks = run("a", {"memory.budget=0.00005", "--ranks", "3"});
  EXPECT_THAT(ranks, Refuses("memory.budget", "of each rank"));
  EXPECT_EQ(ranks.err.find("error:", ranks.err.find("error:") + 1), std::string::npos) << ranks.err;
  EXPECT_THAT(run("a", {"memory.budget=1", "train.steps=2"}), Warns(Not(HasSubstr("[memory]"))));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends a process that asks for terabytes";
#endif
  // Terabytes: the warning comes first, then the allocation fails.
  EXPECT_THAT(run("b", {"model.cells=1000000", "model.projection=0"}),
              Fails("warning: [memory] the estimate is ", "this machine has", "The largest items: "));
}

// With unequal shares of a batch, the rank with the larger one decides.
TEST_F(DryRun, MemoryOfTheLargestShare) {
  const auto activations = [&](const std::string& global) {
    const Outcome o = run("a", {"batch.global=" + global, "batch.micro=0", "train.eval_batch=1",
                                "comm={name: mpi, ranks: 2}", "--dry-run"});
    EXPECT_THAT(o, Succeeds());
    const Match found = first_match(o.out, "activations ([0-9.]+ [kM]?B)");
    return found.empty() ? "none in " + o.out : found[1];
  };
  EXPECT_EQ(activations("21"), activations("22"));
  EXPECT_NE(activations("21"), activations("20"));
}

// Only the virtual ranks that compute at the same time have activations.
TEST_F(DryRun, MemoryOfRanksThatComputeAtTheSameTime) {
  const auto estimate_kb = [&](const std::string& at_once) {
    const Outcome o = run("a", {"memory.budget=0.00001", "batch.global=320",
                                "++comm={name: virtual, ranks: 8, at_once: " + at_once + "}"});
    EXPECT_EQ(o.code, 2) << o.err;
    return number_in(o.err, "the estimate is ([0-9.]+) kB");
  };
  EXPECT_LT(1.1 * estimate_kb("1"), estimate_kb("4"));
  EXPECT_LT(1.1 * estimate_kb("4"), estimate_kb("8"));
  EXPECT_EQ(estimate_kb("8"), estimate_kb("9"));
}

// Ranks of one process share parameters, but not gradients.
TEST_F(DryRun, MemoryOfAllRanks) {
  EXPECT_THAT(run("a", {"model.cells=3000", "--dry-run"}), Succeeds());
  const Outcome many = run("a", {"model.cells=3000", "--ranks", "60000", "--dry-run"});
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.out, HasSubstr("for 60000 ranks"));
  // Only messages of a codec need memory for each pair of ranks.
  const std::string pairs = " of it for the messages between pairs of ranks\n";
  EXPECT_THAT(run("a", {"--ranks", "1600", "--dry-run"}).out, Not(HasSubstr(pairs)));
  EXPECT_THAT(run("a", {"--ranks", "1600", "--dry-run", "++sync={all: {params: '.*', strategy: one_bit}}"}).out,
              HasSubstr(", 282 MB" + pairs));
}

// Without a launcher the processes may run on several machines, so only one rank is counted.
TEST_F(DryRun, ProcessesCanBeOnOtherMachines) {
  const auto planned = [&](const std::string& cells, std::map<std::string, std::string> launcher = {}) {
    auto settings = environment();
    settings.merge(launcher);
    return run_process(command("a", {"comm.name=mpi", "++comm.ranks=100000", "model.projection=0",
                                     "model.cells=" + cells, "--dry-run"}),
                       settings);
  };
  EXPECT_THAT(planned("300"),
              Prints(testing::ContainsRegex(
                  "\nmemory of a machine that holds k ranks: k times [0-9.]+ MB; .* (has|allows) [0-9.]+ "
                  "[MGT]B, enough for [0-9]+ of the 100000 ranks\n")));
  const Outcome few = run("a", {"comm.name=mpi", "++comm.ranks=2", "--dry-run"});
  EXPECT_THAT(few.out, HasSubstr(", enough for all 2 ranks\n"));
  const Outcome large = planned("1000000");
  EXPECT_EQ(large.code, 2) << large.err;
  EXPECT_THAT(large.out, testing::ContainsRegex("\nmemory: not enough: [0-9.]+ TB for one rank, and "));
  const Outcome launched = planned("300", {{"OMPI_COMM_WORLD_RANK", "0"},
                                           {"OMPI_COMM_WORLD_SIZE", "100000"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "50000"}});
  EXPECT_EQ(launched.code, 2);
  EXPECT_THAT(launched.out, AllOf(HasSubstr(" for 50000 ranks on this machine, and "), Not(HasSubstr("k times"))));
}

TEST_F(DryRun, BatchLargerThanTheData) {
  EXPECT_THAT(dry_run({"batch.global=500"}), Names("data: not ready\n", "[tbptt] ", "500 sequences (batch.global)",
                                                   "6 (batcher.sequence_length)", "3001 tokens", "3000"));
  EXPECT_THAT(dry_run({"batch.global=499"}), HasSubstr("data: available\n"));
  use_text(60, "6");
  EXPECT_THAT(dry_run({}), HasSubstr("data: available\n"));
  EXPECT_THAT(dry_run({"batcher.sequence_length=40"}),
              Names("data: not ready\n", "8 sequences (batch.global)", "40 (batcher.sequence_length)", "321 tokens"));
}

TEST_F(DryRun, VocabularyAboveTheTypes) {
  use_text(300, "60");
  EXPECT_THAT(dry_run({}), Names("data: not ready\n", "data.vocab_size 60", "4 distinct", "at most 6"));
  EXPECT_FALSE(fs::exists(path("cache"))) << "a dry run must not prepare data";
}

// The dry run and the run come to the same result on both sides of the limits.
TEST_F(DryRun, AgreesWithTheRun) {
  use_text(300, "6");
  for (const Words& change :
       {Words{}, {"data.vocab_size=7"}, {"batch.global=300", "batch.micro=0"}, {"batcher.sequence_length=2000"}}) {
    Words words{"train.steps=2", "loss.samples=3"};
    words.insert(words.end(), change.begin(), change.end());
    const bool ready = dry_run(words).find("data: available\n") != std::string::npos;
    EXPECT_EQ(run("a", words).code, ready ? 0 : 2) << testing::PrintToString(change);
    fs::remove_all(path("a"));
  }
}

// Compares "memory (estimate)" with the peak that the run reports. The total must agree within a factor, for recipes
// whose memory is mostly optimizer state, activations, a full softmax, or an evaluation; in every precision.
TEST_F(DryRun, MemoryEstimateIsNearTheMeasuredPeak) {
  const std::string lstm = "model: {name: lstm, embedding: 64, ",
                    sampled = "loss: {name: sampled_softmax, samples: 200}\n",
                    adam = "optimizer: {name: adam, lr: 0.01}\n", sgd = "optimizer: {name: sgd, lr: 0.1}\n";
  struct Case {
    int vocabulary;
    std::string components, batch;
    double factor;
  };
  const Case cases[] = {
      {20000, lstm + "cells: 256}\n" + sampled + adam + "train: {steps: 3, ema: 0.9}\n", "{global: 16}", 1.1},
      {2000, lstm + "cells: 512, projection: 64, layers: 2, dropout: 0.2}\n" + sampled + adam + "train: {steps: 3}\n",
       "{global: 64}", 1.1},
      {10000, lstm + "cells: 128}\nloss: {name: full_softmax}\n" + sgd + "train: {steps: 3}\n",
       "{global: 32, micro: 8}", 1.25},
      {16000, lstm + "cells: 64}\n" + sampled + sgd + "train: {steps: 3, eval_batch: 64}\n", "{global: 8}", 1.25},
      {16000, lstm + "cells: 64}\nloss: {name: two_stage_softmax}\n" + sgd + "train: {steps: 3}\n", "{global: 32}",
       1.25},
      {2000,
       "model: {name: transformer, encoder_layers: 0, decoder_layers: 3, d: 128, ffn: 512, heads: 4, share: none}\n" +
           sampled + adam + "train: {steps: 3}\n",
       "{global: 64}", 1.1},
  };
  for (const Case& c : cases) {
    write("tiny.yaml", "data: {name: synthetic, train_tokens: 20000, valid_tokens: 1000, vocab_size: " +
                           std::to_string(c.vocabulary) + "}\nbatcher: {name: tbptt, sequence_length: 25}\n" +
                           c.components + "batch: " + c.batch + "\nrun: {tensorboard: false}\nthreads: 1\n");
    for (const std::string precision : {"precision=fp32", "precision=bf16", "precision=fp16"}) {
      const double estimate = bytes_of(dry_run({precision}), "total");
      const Outcome o = run("a", {precision});
      ASSERT_THAT(o, Succeeds());
      const double peak = bytes_of(o.err, "peak memory");
      EXPECT_LT(std::abs(std::log(estimate / peak)), std::log(c.factor))
          << c.components << precision << ", estimate " << estimate << ", peak " << peak << "\n"
          << o.err;
      fs::remove_all(path("a"));
    }
  }
}

// The estimate is for the rank with the most sequences, with communication: the total is near the peak of the rank with
// the largest memory. The part for communication is less accurate, since the frequency of words is assumed by Zipf's
// law.
TEST_F(DryRun, MemoryOfOneOfSeveralRanks) {
  constexpr double kFactor = 1.25;
  write(
      "tiny.yaml",
      "data: {name: synthetic, train_tokens: 20000, valid_tokens: 1000, vocab_size: 4000}\n"
      "batcher: {name: tbptt, sequence_length: 10}\nmodel: {name: lstm, embedding: 64, cells: 128, projection: 64}\n"
      "loss: {name: sampled_softmax, samples: 200}\noptimizer: {name: sgd, lr: 0.1}\nbatch: {global: 30}\n"
      "train: {steps: 3, eval_batch: 8}\ncomm: {name: virtual, ranks: 4}\nsync: {all: {params: .*, strategy: unique}}\n"
      "run: {tensorboard: false}\nthreads: 1\n");
  for (const std::string strategy : {"allreduce", "unique", "allgather", "allgather_dense"}) {
    for (const std::string ranks : {"2", "7"}) {
      const Words words{"sync.all.strategy=" + strategy, "comm.ranks=" + ranks};
      const std::string text = dry_run(words);
      EXPECT_THAT(text, Names("one of " + ranks, std::string(ranks == "2" ? "15" : "5") + " of the 30"));
      EXPECT_THAT(text, HasSubstr("  not counted: "));
      const double estimate = bytes_of(text, "total"), communication = bytes_of(text, "communication");
      const Outcome o = run("a", words);
      ASSERT_THAT(o, Succeeds());
      EXPECT_LT(std::abs(std::log(estimate / bytes_of(o.err, "most of any rank"))), std::log(kFactor)) << text << o.err;
      EXPECT_LT(std::abs(std::log(communication / bytes_of(o.err, "communication"))), std::log(2.5))
          << strategy << text << o.err;
      fs::remove_all(path("a"));
    }
  }
}

// Gathered matrices grow with the ranks, sums do not. A micro-batch larger than a rank's part is limited to that part.
TEST_F(DryRun, CommunicationGrowsAsTheStrategySays) {
  const auto communication = [&](const std::string& strategy, int ranks) {
    return bytes_of(
        dry_run({"--ranks", std::to_string(ranks), "batch.global=" + std::to_string(8 * ranks), "data.vocab_size=20000",
                 "data.classes=6", "loss.samples=20", "sync={all: {params: '.*', strategy: " + strategy + "}}"}),
        "communication");
  };
  const double at_8 = communication("allgather_dense", 8), at_16 = communication("allgather_dense", 16);
  EXPECT_NEAR((at_16 - at_8) / (8.0 * 20000 * (12 + 8 + 1) * 4), 1, 0.15);  // V x D of both tables and their bias
  EXPECT_LT(communication("unique", 16), 0.1 * at_16);
  const auto activations = [&](const std::string& micro) {
    return bytes_of(dry_run({"--ranks", "4", "batch.micro=" + micro, "model.cells=512", "train.eval_batch=4"}),
                    "activations");
  };
  EXPECT_EQ(activations("4"), activations("0"));
  EXPECT_LT(activations("1"), activations("0"));
}

// Ranks that sample the same candidates use the same rows of the output table: fewer sets give fewer rows.
TEST_F(DryRun, CommunicationFollowsTheNumberOfSeeds) {
  const auto communication = [&](const std::string& rule) {
    return bytes_of(dry_run({"--ranks", "32", "batch.global=32", "batch.micro=0", "data.vocab_size=20000",
                             "loss.samples=400", "sync={all: {params: '.*', strategy: " + rule + "}}"}),
                    "communication");
  };
  const double all = communication("seeded, seeds: all"), log2 = communication("seeded, seeds: log2"),
               one = communication("seeded, seeds: one");
  EXPECT_GT(all, 1.5 * log2);
  EXPECT_GT(log2, 1.4 * one);
  EXPECT_NEAR(communication("unique"), one, 0.05 * one);  // without groups all ranks sample one set
}

// The launcher determines the number of ranks. Processes send during backward, threads after it.
TEST_F(DryRun, RanksThatNobodyHasCounted) {
  EXPECT_THAT(dry_run({"comm={name: mpi}"}), Names("memory", "comm.ranks=N"));
  const std::string process = "ranks in this process";
  EXPECT_THAT(dry_run({"comm={name: mpi, ranks: 4}"}), AllOf(HasSubstr("one of 4"), Not(HasSubstr(process))));
  EXPECT_THAT(dry_run({"--ranks", "4"}), Names("one of 4", process));
}

TEST_F(DryRun, RanksWithSeparateValuesNeedAPartOfEveryBatch) {
  for (const char* ema : {"train.ema=0", "train.ema=0.5"}) {
    const Outcome o = run("a", {"--ranks", "9", "sync={all: {params: '.*', strategy: local_sgd}}", ema, "--dry-run"});
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, ema == std::string("train.ema=0") ? Names("9 ranks", "batch.global is 8")
                                                         : Names("error: override 'train.ema=0.5': 0.5 averages"));
  }
}

TEST_F(DryRun, WorkersWithAServer) {
  const std::string text =
      dry_run({"--ranks", "4", "sync={all: {params: '.*', strategy: param_server}}", "train.ema=0"});
  EXPECT_THAT(text, AllOf(Names("one of 4", "2 of the 8", "not counted"), Not(HasSubstr("communication "))));
  EXPECT_THAT(dry_run({}), AllOf(HasSubstr("memory (estimate)\n"), Not(HasSubstr("not counted"))));
}

}  // namespace
}  // namespace lmx_test
