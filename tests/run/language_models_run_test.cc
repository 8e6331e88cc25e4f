// Whole runs of language models: recurrent ones, Transformers, and losses and strategies that use rows of tables.
#include <cmath>

#include "process/run_fixture.h"

namespace lmx_test {

// Whole runs of the multiplicative LSTM and the recurrent highway network: mixed precision, weight normalisation,
// activation checkpointing and resuming.

namespace {

const char* const kMlstm = "{name: mlstm, embedding: 12, cells: 16, dropout: 0.1, weight_norm: 'mlstm\\..*'}";
const char* const kRhn = "{name: rhn, layers: 2, embedding: 12, cells: 16, depth: 3, dropout: 0.1}";

class ModelRun : public RunTest {
 protected:
  // The number after "valid ppl " on the last line that contains it.
  static double perplexity(const std::string& out) {
    const size_t at = out.rfind("valid ppl ");
    return at == std::string::npos ? 0 : std::stod(out.substr(at + 10));
  }
  // Expects that a run of two halves ends with the bits of a run without a pause.
  void expect_same_bits_resumed(const Words& words = {}) const {
    const auto with = [&](const Words& more) { return joined(words, more); };
    ASSERT_THAT(run("whole", words), Succeeds());
    ASSERT_THAT(run("halves", with({"train.steps=60"})), Succeeds());
    ASSERT_THAT(run("halves", with({"--resume", "auto", "train.steps=120"})), Succeeds());
    EXPECT_EQ(model("halves"), model("whole"));
  }
  // The same, and the run's model continues a text in the same way each time.
  void expect_resumes_and_generates() const {
    ASSERT_NO_FATAL_FAILURE(expect_same_bits_resumed());
    const Words words{"generate", path("whole"), "--tokens", "12"};
    const Outcome text = run_lmx(words, environment());
    EXPECT_THAT(text, Succeeds());
    EXPECT_EQ(text.out, run_lmx(words, environment()).out);
  }
};

class RecurrentRun : public ModelRun {
 protected:
  // Writes the tiny recipe with this model.
  void use(const std::string& model) const {
    write("tiny.yaml", replaced(kTinyRecipe, "model: .*", "model: " + model));
  }
};

// Perplexities of mixed precision are close to those of fp32; fp16 uses Puri's loss scale, which starts at 2^32 and
// must fall.
TEST_F(RecurrentRun, MixedPrecisionIsNearFp32) {
  for (const std::string model : {kMlstm, kRhn}) {
    use(model);
    double fp32 = 0;
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      const Outcome o = run("a", {"precision=" + precision, "loss_scale={preset: puri}", "train.steps=200"});
      ASSERT_THAT(o, Succeeds());
      const double ppl = perplexity(o.out);
      if (precision == "fp32") fp32 = ppl;
      EXPECT_GT(ppl, 1) << o.out;
      EXPECT_NEAR(std::log2(ppl), std::log2(fp32), 0.05) << model << ' ' << precision;
      fs::remove_all(path("a"));
    }
  }
}

TEST_F(RecurrentRun, ResumesToTheBit) {
  for (const std::string model : {kMlstm, kRhn}) {
    SCOPED_TRACE(model);
    use(model);
    expect_same_bits_resumed({"precision=fp16", "loss_scale={preset: puri}"});
    fs::remove_all(path("whole"));
    fs::remove_all(path("halves"));
  }
}

// After 40 steps the model with activation checkpointing equals the plain one in every byte.
TEST_F(RecurrentRun, CheckpointingChangesNothing) {
  for (const std::string model : {kMlstm, kRhn}) {
    use(model);
    ASSERT_THAT(run("plain", {"train.steps=40", "model.segment=2"}), Succeeds());
    ASSERT_THAT(run("less", {"train.steps=40", "model.segment=2", "model.checkpoint=true"}), Succeeds());
    EXPECT_EQ(this->model("less", 40), this->model("plain", 40)) << model;
    fs::remove_all(path("plain"));
    fs::remove_all(path("less"));
  }
}

TEST_F(RecurrentRun, ACheckpointOfOnePieceIsTold) {
  use(kMlstm);  // 6 steps of 4 sequences
  const auto told = Names("warning: [model] checkpoint", "6 steps", "4 sequences", "model.segment=2");
  const Words words{"model.checkpoint=true", "train.steps=2"};
  EXPECT_THAT(run("a", words).err, told);
  EXPECT_THAT(run("b", {words[0], "--dry-run"}).out, told);
  for (const char* other : {"model.segment=2", "model.checkpoint=false", "model.layers=2"})
    EXPECT_THAT(run("b", {words[0], other, "--dry-run"}).out, testing::Not(HasSubstr("[model] checkpoint"))) << other;
}

TEST_F(RecurrentRun, DryRunCountsGains) {
  use("{name: mlstm, weight_norm: 'mlstm\\..*'}");
  const Outcome o =
      run("a", {"--dry-run", "data.vocab_size=256", "loss={name: full_softmax, bias: true}", "~loss.samples"});
  EXPECT_THAT(o, Prints("parameters 86,319,360\n", "40,960", "86,278,400"));
}

TEST_F(RecurrentRun, PatternsThatFitNothing) {
  use("{name: mlstm, weight_norm: 'rhn.*'}");
  EXPECT_THAT(run("a"), Refuses("weight_norm:", "'rhn.*'"));
}

// Whole runs of a language model that is a Transformer's decoder: tbptt, windows, every softmax, checkpoints, text.

class TransformerRun : public ModelRun {
 protected:
  void use(const std::string& loss, const std::string& share = "all") const {
    use_model("name: transformer, encoder_layers: 0, decoder_layers: 2, d: 16, ffn: 32, heads: 2, share: " + share,
              loss);
  }
  void use_model(const std::string& model, const std::string& loss) const {
    const std::string text = replaced(kTinyRecipe, "model: .*", "model: {" + model + "}");
    write("tiny.yaml", replaced(text, "loss: .*", "loss: {" + loss + "}"));
  }
};

// The perplexity of single words is 60; given the previous word it is 8.4 for this source. 120 steps reach 9.8 to 11.
TEST_F(TransformerRun, LearnsUnderEverySoftmax) {
  for (const std::string loss :
       {"name: full_softmax", "name: sampled_softmax, samples: 20", "name: two_stage_softmax"}) {
    for (const char* share : {"all", "none"}) {
      use(loss, share);
      const Outcome o = run("lm");
      ASSERT_EQ(o.code, 0) << loss << o.err;
      EXPECT_GT(perplexity(o.out), 1) << o.out;
      EXPECT_LT(perplexity(o.out), 16) << loss << ' ' << share << '\n' << o.out;
      fs::remove_all(path("lm"));
    }
  }
}

TEST_F(TransformerRun, ResumesAndGenerates) {
  use("name: sampled_softmax, samples: 20");
  expect_resumes_and_generates();
}

TEST_F(TransformerRun, TakesRandomWindowsAndRanks) {
  use("name: sampled_softmax, samples: 20", "none");
  Outcome o = run("windows", {"batcher={name: random_windows, sequence_length: 6}", "train.steps=20"});
  EXPECT_THAT(o, Succeeds());
  o = run("ranks", {"--ranks", "2", "train.steps=20"});
  EXPECT_THAT(o, Succeeds());
}

TEST_F(TransformerRun, ALanguageModelHasNoSource) {
  use("name: full_softmax");
  EXPECT_THAT(run("pairs", {"model.encoder_layers=1"}), Refuses("transformer", "synthetic", "one language"));
}

// Whole runs of the model `gpt`. Llama's layers with grouped queries, and GPT-2's.

class GptRun : public TransformerRun, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, GptRun,
                         testing::Values("name: gpt, layers: 2, d: 16, heads: 4, kv_heads: 2, ffn: 32, dropout: 0.05",
                                         "name: gpt, layers: 2, d: 16, heads: 2, positions: learned, norm: layer, "
                                         "activation: gelu_tanh, bias: true, tie: false, checkpoint: true"));

TEST_P(GptRun, LearnsInEveryPrecision) {
  use_model(GetParam(), "name: full_softmax, bias: false");
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    const Outcome o = run("lm_" + precision, {"precision=" + precision});
    ASSERT_THAT(o, Succeeds());
    EXPECT_GT(perplexity(o.out), 1) << o.out;
    EXPECT_LT(perplexity(o.out), 16) << precision << '\n' << o.out;
  }
}

TEST_P(GptRun, ResumesToTheSameBitsAndGenerates) {
  use_model(GetParam(), "name: sampled_softmax, samples: 20");
  expect_resumes_and_generates();
}

TEST_P(GptRun, TrainsOnPackedWindowsAndVirtualRanks) {
  use_model(GetParam(), "name: full_softmax");
  const std::string batcher = "batcher={name: packed_windows, sequence_length: 6}";
  const Outcome one = run("one", {batcher, "train.steps=20"});
  EXPECT_THAT(one, Succeeds());
  const Outcome two = run("two", {batcher, "--ranks", "2", "train.steps=20"});
  EXPECT_THAT(two, Succeeds());
  EXPECT_NEAR(perplexity(two.out) / perplexity(one.out), 1, 1e-3);
}

TEST_P(GptRun, SeparatesDocuments) {
  use_model(GetParam(), "name: full_softmax");
  const std::string windows = "batcher={name: packed_windows, sequence_length: 24, documents: ";
  const Words words{windows + "separate}", "train.steps=20"};
  const auto with = [&](const Words& more) { return joined(words, more); };
  const Outcome one = run("one", words);
  ASSERT_THAT(one, Succeeds());
  ASSERT_THAT(run("joined", {windows + "join}", "train.steps=20"}), Succeeds());
  EXPECT_NE(model("joined", 20), model("one", 20));
  EXPECT_NEAR(perplexity(run("two", with({"--ranks", "3"})).out) / perplexity(one.out), 1, 1e-3);
  ASSERT_THAT(run("halves", with({"--until", "9"})), Succeeds());
  ASSERT_THAT(run("halves", with({"--resume", "auto"})), Succeeds());
  EXPECT_EQ(model("halves", 20), model("one", 20));
  // A plan has no text; it counts windows of one document each.
  EXPECT_THAT(run("dry", with({"--dry-run"})), Succeeds());
}

TEST_P(GptRun, SequencesBeyondTheContextAreNamed) {
  use_model(GetParam(), "name: full_softmax");
  const Outcome o = run("long", {"model.context=5", "train.steps=2"});
  const bool learned = std::string(GetParam()).find("learned") != std::string::npos;
  EXPECT_EQ(o.code, learned ? 2 : 0) << o.err;
  if (learned) {
    EXPECT_THAT(o.err, Names("[gpt]", "tokens", "model.context is 5"));
  }
}

// A recurrent state is carried over a window.
TEST_F(RecurrentRun, SeparateDocumentsAreRefused) {
  for (const char* more : {"threads=1", "--dry-run"}) {
    EXPECT_THAT(run("a", {"batcher={name: packed_windows, sequence_length: 6, documents: separate}", more}),
                Refuses("packed_windows", "separates documents", "lstm", "gpt"));
  }
}

// Whole runs with losses and strategies that use rows of tables, and with a tied table.

class RowsRun : public RunTest {
 protected:
  // Writes tiny.yaml with another loss and other rules.
  void use(const std::string& loss, const std::string& sync = "", const std::string& more = "") const {
    std::string text = replaced(kTinyRecipe, "loss: .*", "loss: {" + loss + "}");
    if (!sync.empty()) text += "sync: {all: {params: '.*', " + sync + "}}\n";
    write("tiny.yaml", text + more);
  }
};

TEST_F(RowsRun, EveryShippedGroupIsRight) {
  for (const char* kind : {"sync", "loss"}) {
    for (const auto& entry : fs::directory_iterator(source_path("/recipes/") + std::string(kind))) {
      const std::string choice = kind + ("=" + entry.path().stem().string());
      Words words{"run", source_path("/recipes/quickstart.yaml"), "--ranks", "4", "--dry-run", choice};
      // For groups that set its seeds, and those whose results are directions, which must not be clipped.
      if (kind == std::string("sync")) words.insert(words.end(), {"loss=sampled_softmax", "clip=0"});
      const Outcome o = run_lmx(words, environment());
      // This model has row-sparse gradients, which have neither owners nor moments.
      const bool refused = choice == "sync=zero" || choice == "sync=one_bit_adam";
      EXPECT_EQ(o.code, refused ? 2 : 0) << choice << o.err;
      if (refused) {
        EXPECT_THAT(o.err, HasSubstr("sync=unique sync.rest.strategy=" + choice.substr(choice.find('=') + 1)));
      }
    }
  }
}

TEST_F(RowsRun, ATiedTableTrainsAndGenerates) {
  for (const std::string loss :
       {"name: full_softmax", "name: sampled_softmax, samples: 20", "name: two_stage_softmax"}) {
    use(loss + ", tie: embedding.weight");
    Outcome o = run("tied", {"model.projection=12", "train.steps=40"});
    ASSERT_EQ(o.code, 0) << loss << o.err;
    // Parameters: the table 60 x 12, the LSTM 4 x 16 x (12 + 12) + 64 + 12 x 16, and the bias.
    EXPECT_THAT(read_file(path("tied/log.txt")), HasSubstr("2,572 parameters"));
    EXPECT_THAT(o.out, HasSubstr("valid ppl"));
    o = run_lmx({"generate", path("tied"), "--tokens", "5"}, environment());
    EXPECT_THAT(o, Succeeds());
    fs::remove_all(path("tied"));
  }
}

TEST_F(RowsRun, TiedTablesOfOtherSizesAreRefused) {
  use("name: full_softmax, tie: embedding.weight");
  EXPECT_THAT(run("tied"), Refuses("loss.tie:", "embedding.weight", "(60, 12)", "(60, 8)", "features, 8"));
  EXPECT_FALSE(fs::exists(path("tied")));
}

// Rows are sampled by step, so later steps do not depend on where a checkpoint was made.
TEST_F(RowsRun, ResumedRunsDrawTheSameRows) {
  for (const std::string sync :
       {"strategy: sampled_rows", "strategy: sampled_rows, p: 25, q: 25, codec: {kind: one_bit}", "strategy: unique"}) {
    use("name: two_stage_softmax", sync);
    const Words ranks{"--ranks", "3"};
    ASSERT_THAT(run("whole", ranks), Succeeds()) << sync;
    ASSERT_THAT(run("parts", {"--ranks", "3", "train.steps=50"}), Succeeds()) << sync;
    ASSERT_THAT(run_process(command("parts", {"--ranks", "3", "--resume", path("parts")}), environment()), Succeeds())
        << sync;
    EXPECT_EQ(model("parts"), model("whole")) << sync;
    EXPECT_FALSE(model("whole").empty());
    for (const char* name : {"whole", "parts"}) fs::remove_all(path(name));
  }
}

TEST_F(RowsRun, WorkersOfAServerTakeRows) {
  use("name: two_stage_softmax", "strategy: sampled_rows, transport: param_server, codec: {kind: one_bit}", "");
  const Words words{"--ranks", "4", "train.steps=60", "train.ema=0", "schedule.name=constant"};
  for (const char* name : {"a", "b"}) {
    ASSERT_THAT(run(name, words), Succeeds());
  }
  EXPECT_THAT(read_file(path("a/log.txt")), Names("asynchronous", "4 workers", "90 %", "lstm"));
  EXPECT_EQ(model("a", 60), model("b", 60));
}

}  // namespace
}  // namespace lmx_test
