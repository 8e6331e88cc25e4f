// Several samples of one prompt, drawn side by side: each is compared with a loop that reads its own whole text again
// for each token, with forward() and a batch of one sequence.
#include <csignal>
#include <filesystem>
#include <set>

#include "app/inference/generate.h"
#include "paths.h"
#include "train/run_folder.h"
#include "train/signals.h"

namespace lmx::app {
namespace {

class Samples : public RunFolderTest, public testing::WithParamInterface<const char*> {
 protected:
  void make_run(const std::string& model, const std::string& data = "") {
    Registry::instance().add_directory(lmx_test::build_path("/tests/plugins/own_kinds"));
    std::string text;
    for (int i = 0; i < 60; ++i) text += str("a film ", i * 7 % 23, " of ", i % 5, "\n");
    write_all(path("text.txt"), text);
    save_new_run(
        "run",
        str("data: {name: text, files: [", path("text.txt"), "], valid_fraction: 0.1, test_fraction: 0.2, ",
            "cache_dir: ", path("cache"), ", tokens: bytes", data, "}\nbatcher: {name: tbptt, sequence_length: 7}\n",
            "batch: {global: 2}\nmodel: {", model, "}\nloss: {name: full_softmax}\n",
            "optimizer: {name: sgd, lr: 0.1}\ntrain: {steps: 1}\nthreads: 1\n"),
        1);
    options_.prompt = "a film of";
    options_.tokens = 12;
    options_.temperature = 0.7;
    options_.seed = 5;
  }

  // The bytes of sample `k`.
  std::string replayed(int64_t k) const {
    SavedRun run(path("run"), recipe_of_run(path("run")), load_vocabulary(path("run")), "last");
    RandomKey key = RandomKey(static_cast<uint64_t>(options_.seed)).fold("generate");
    if (k > 0) key = key.fold(static_cast<uint64_t>(k));
    std::string text = "\n" + options_.prompt;
    for (int64_t i = 0; i < options_.tokens; ++i) {
      const std::vector<float> logits = after(run, text);
      text += static_cast<char>(draw_token(logits, -1, options_, key.uniform(static_cast<uint64_t>(i))));
    }
    return text.substr(1);
  }
  std::vector<std::string> drawn(int64_t samples) {
    options_.samples = samples;
    return generate_texts(path("run"), options_);
  }

  GenerateOptions options_;

 private:
  // Reads byte by byte if a unit is held, because its value is set before each.
  std::vector<float> after(SavedRun& run, const std::string& text) const {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    ModelState state = run.network.model->initial_state(run.ctx, 1);
    if (!options_.held) return logits_after(run, state, ids);
    std::vector<float> logits;
    for (const int32_t id : ids) {
      state.at(options_.held->state).data<float>()[options_.held->unit] = static_cast<float>(options_.held_value);
      logits = logits_after(run, state, {id});
    }
    return logits;
  }
};

// The texts are those of the replay, so they do not depend on how many samples there are.
TEST_P(Samples, AreTheTextsOfTheirOwnRandomNumbers) {
  make_run(GetParam());
  const std::vector<std::string> want{replayed(0), replayed(1), replayed(2)};
  EXPECT_EQ(std::set(want.begin(), want.end()).size(), 3U);
  for (size_t n = 1; n <= want.size(); ++n)
    EXPECT_EQ(drawn(static_cast<int64_t>(n)), std::vector(want.begin(), want.begin() + static_cast<int64_t>(n))) << n;
}

#define NORMAL ", init: {kind: normal, scale: 0.7}, embedding_init: {kind: normal, scale: 1}"
INSTANTIATE_TEST_SUITE_P(Models, Samples,
                         testing::Values("name: lstm, layers: 2, embedding: 8, cells: 12" NORMAL,
                                         "name: mlstm, embedding: 8, cells: 12" NORMAL,
                                         "name: transformer, encoder_layers: 0, decoder_layers: 2, d: 16, ffn: 24, "
                                         "heads: 2",
                                         "name: gpt, layers: 2, d: 16, heads: 4, kv_heads: 2, context: 32",
                                         "name: test_model", "name: test_model, window: 2"));
#undef NORMAL

// The unit has its value in the state of each text, not in that of the first one alone.
TEST_F(Samples, HoldTheUnitInEachText) {
  make_run("name: lstm, layers: 2, embedding: 8, cells: 12, init: {kind: normal, scale: 0.7}");
  const std::vector<std::string> without{replayed(0), replayed(1), replayed(2)};
  options_.held = StateUnit{"lstm.0.c", 5};
  options_.held_value = 4;
  const std::vector<std::string> want{replayed(0), replayed(1), replayed(2)};
  EXPECT_EQ(drawn(3), want);
  for (size_t k = 0; k < 3; ++k) EXPECT_NE(want[k], without[k]) << k;
}

// A model with a state reads a prompt in pieces of 512 tokens.
TEST_F(Samples, LongPromptsAreReadToTheirEnd) {
  make_run("name: mlstm, embedding: 8, cells: 12, init: {kind: normal, scale: 0.7}");
  options_.tokens = 2;
  for (const size_t size : {510, 511, 512, 1500}) {  // and the line end before it
    options_.prompt.resize(size);
    for (size_t i = 0; i < size; ++i) options_.prompt[i] = static_cast<char>('a' + i * i % 23);
    EXPECT_EQ(drawn(2), (std::vector{replayed(0), replayed(1)})) << size;
  }
}

// The fault of the model: a signal arrives while it reads.
TEST_F(Samples, ASignalInThePromptEndsTheTextThere) {
  make_run("name: test_model, window: 2, fault: 11");
  options_.prompt.resize(1500, 'a');
  {
    const SignalGuard guard;
    EXPECT_EQ(drawn(1)[0], options_.prompt);
    EXPECT_EQ(SignalGuard::received(), SIGINT);
  }
  const SignalGuard forgets_the_signal;
}

// The proposed options fit the positions of the model: </s> before a text is one token, and "\n " of puri are two.
TEST_F(Samples, ProposedOptionsFitTheModel) {
  const auto options = [&](const std::string& model, const std::string& data = "") {
    std::filesystem::remove_all(path("run"));
    make_run(model, data);
    options_.prompt = "";
    const std::string text = options_for_text(recipe_of_run(path("run")), load_vocabulary(path("run")));
    options_.tokens = std::stol(text.substr(text.rfind(' ')));
    EXPECT_EQ(drawn(1).size(), 1U) << text;
    ++options_.tokens;
    return text;
  };
  const std::string limited = "name: gpt, layers: 1, d: 8, heads: 2, positions: learned, context: 20";
  EXPECT_EQ(options(limited), "--tokens 20");
  EXPECT_THROW(drawn(1), UserError);
  EXPECT_EQ(options(limited, ", preprocess: puri"), "--tokens 19");
  EXPECT_THROW(drawn(1), UserError);
  EXPECT_EQ(options("name: gpt, layers: 1, d: 8, heads: 2, context: 20"), "--tokens 40");
}

TEST_F(Samples, AreRefusedWhereTheyWouldBeEqualOrTooMany) {
  make_run("name: lstm, layers: 1, embedding: 8, cells: 12");
  EXPECT_THROW(drawn(0), UserError);
  EXPECT_THROW(drawn(10'001), UserError);
  options_.temperature = 0;
  EXPECT_THROW(drawn(2), UserError);
  EXPECT_EQ(drawn(1).size(), 1U);
}

}  // namespace
}  // namespace lmx::app
