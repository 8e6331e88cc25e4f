// A new run's folder with a model of bytes or characters: compares the sampled text and the counts of the evaluation
// with loops that read one token at a time.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <numeric>

#include "app/datasets/open.h"
#include "app/inference/evaluate_run.h"
#include "app/inference/generate.h"
#include "app/probe/transfer.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "train/evaluate.h"
#include "train/run_folder.h"
#include "train/signals.h"

namespace lmx::app {
namespace {

std::map<int32_t, double> shares(const std::vector<float>& logits, int32_t without, const GenerateOptions& options) {
  constexpr int kDraws = 20'000;
  std::map<int32_t, double> all;
  for (int i = 0; i < kDraws; ++i) all[draw_token(logits, without, options, (i + 0.5) / kDraws)] += 1.0 / kDraws;
  return all;
}

// The probabilities softmax(logits / temperature) of `ids`.
std::map<int32_t, double> softmax(const std::vector<float>& logits, const std::vector<int32_t>& ids,
                                  double temperature) {
  std::map<int32_t, double> all;
  double sum = 0;
  for (const int32_t id : ids)
    sum += all[id] = std::exp(static_cast<double>(logits[static_cast<size_t>(id)]) / temperature);
  for (auto& [id, share] : all) share /= sum;
  return all;
}

TEST(DrawToken, SharesAreThoseOfTheSoftmax) {
  const std::vector<float> logits{0.5F, -1.0F, 2.0F, 1.5F, 2.0F, -3.0F};
  const auto expect = [&](const GenerateOptions& o, int32_t without, const std::vector<int32_t>& ids) {
    const auto got = shares(logits, without, o), want = softmax(logits, ids, o.temperature);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [id, share] : want) EXPECT_NEAR(got.at(id), share, 1e-4) << id;
  };
  GenerateOptions o;
  expect(o, -1, {0, 1, 2, 3, 4, 5});
  expect(o, 2, {0, 1, 3, 4, 5});
  for (const double temperature : {0.8, 3.0}) {
    o.temperature = temperature;
    expect(o, -1, {0, 1, 2, 3, 4, 5});
    o.top_k = 3;
    expect(o, -1, {2, 3, 4});
    o.top_k = 1;
    expect(o, -1, {2});  // the first of equal ones
    o.top_k = 0;
  }
  o.temperature = 1;  // 0.347, 0.347, 0.210, 0.077, 0.017, 0.002
  const std::vector<std::pair<double, std::vector<int32_t>>> cases{
      {0.3, {2}}, {0.5, {2, 4}}, {0.75, {2, 3, 4}}, {0.9, {2, 3, 4}}, {0.95, {0, 2, 3, 4}}};
  for (const auto& [p, ids] : cases) {
    o.top_p = p;
    const double shared = std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, int32_t id) {
      return sum + softmax(logits, {0, 1, 2, 3, 4, 5}, 1).at(id);
    });
    EXPECT_GE(shared, p);
    expect(o, -1, ids);
  }
  o.top_p = 0.75;
  o.top_k = 2;  // first the k most probable ones, then top_p of these
  expect(o, -1, {2, 4});
  o.temperature = 0;
  EXPECT_EQ(draw_token(logits, -1, o, 0.999), 2);
  EXPECT_EQ(draw_token(logits, 2, o, 0.999), 4);
}

class LettersRun : public RunFolderTest {
 protected:
  void make_run(const std::string& data, const std::string& text) {
    write_all(path("text.txt"), text);
    save_new_run("run",
                 str("data: {name: text, files: [", path("text.txt"), "], valid_fraction: 0.1, test_fraction: 0.2, ",
                     "cache_dir: ", path("cache"), ", ", data, "}\nbatcher: {name: tbptt, sequence_length: 7}\n",
                     "batch: {global: 2}\nmodel: {name: lstm, layers: 2, embedding: 8, cells: 12, init: {kind: ",
                     "normal, scale: 0.7}, embedding_init: {kind: normal, scale: 1}}\nloss: {name: full_softmax}\n",
                     "optimizer: {name: sgd, lr: 0.1}\ntrain: {steps: 1, eval_batch: 3}\nthreads: 1\n"),
                 1);
  }
  SavedRun open() const { return {path("run"), recipe_of_run(path("run")), load_vocabulary(path("run")), "last"}; }
  Dataset data() const { return open_dataset(recipe_of_run(path("run")).data); }

  // Nats of every token except the first, from a zero state.
  static double nats(SavedRun& run, const std::vector<int32_t>& tokens) {
    ModelState state = run.network.model->initial_state(run.ctx, 1);
    double sum = 0;
    for (size_t t = 0; t + 1 < tokens.size(); ++t) {
      const std::vector<float> logits = logits_after(run, state, {tokens[t]});
      double all = 0;
      for (const float l : logits) all += std::exp(static_cast<double>(l));
      sum += std::log(all) - static_cast<double>(logits[static_cast<size_t>(tokens[t + 1])]);
    }
    return sum;
  }
};

std::string reviews(int count, const std::string& begin) {
  std::string text;
  for (int i = 0; i < count; ++i) text += begin + std::string(static_cast<size_t>(i * 7 % 23), "xyz"[i % 3]) + "\n";
  return text;
}

// A unit's value is set before each token that is read: the line end before the text, the prompt, and sampled tokens.
TEST_F(LettersRun, HeldUnits) {
  make_run("tokens: bytes", reviews(60, "good "));
  GenerateOptions o;
  o.prompt = "a film of";
  o.tokens = 30;
  o.temperature = 0;
  std::map<std::string, int> texts;
  for (const double value : {0.0, -4.0, 4.0}) {
    o.held = StateUnit{"lstm.0.c", 5};
    o.held_value = value;
    SavedRun run = open();
    ModelState state = run.network.model->initial_state(run.ctx, 1);
    std::string text = "\n" + o.prompt;
    for (size_t i = 0; i < o.prompt.size() + 30; ++i) {
      state.at("lstm.0.c").data<float>()[5] = static_cast<float>(value);
      const std::vector<float> logits = logits_after(run, state, {static_cast<unsigned char>(text[i])});
      const auto likeliest = static_cast<char>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (i + 1 == text.size()) text += likeliest;
    }
    EXPECT_EQ("\n" + generate_texts(path("run"), o)[0], text) << value;
    ++texts[text.substr(1)];
  }
  o.held.reset();
  ++texts[generate_texts(path("run"), o)[0]];
  EXPECT_EQ(texts.size(), 4U) << "the unit has no effect on the text";
  // After a signal the text that there is comes back. It has a prefix of the tokens, here none.
  {
    const SignalGuard guard;
    std::raise(SIGINT);
    EXPECT_EQ(generate_texts(path("run"), o)[0], o.prompt);
  }
  const SignalGuard forgets_the_signal;
}

// Features are the state after the last byte; a unit's trace is its value after each byte.
TEST_F(LettersRun, FeaturesAndTracesAreTheState) {
  make_run("tokens: bytes", reviews(60, "good "));
  LabelledTexts texts;
  for (const char* text : {"a film", "so good that it ends", "b", "a film"}) texts.texts.push_back(text);
  texts.labels.assign(4, 0);
  texts.places.assign(4, "here");
  std::map<std::string, FeatureMatrix> features;
  for (const char* state : {"cell", "hidden", "lstm.0.h"}) {
    FeatureOptions o;
    o.state = state;
    features[state] = text_features(path("run"), texts, o);
    ASSERT_EQ(features[state].columns, 12);
  }
  const std::map<std::string, std::string> names{
      {"cell", "lstm.1.c"}, {"hidden", "lstm.1.h"}, {"lstm.0.h", "lstm.0.h"}};
  SavedRun run = open();
  for (size_t i = 0; i < texts.texts.size(); ++i) {
    const UnitTrace trace = trace_unit(path("run"), texts.texts[i], {"hidden", 7}, "last");
    ModelState state = run.network.model->initial_state(run.ctx, 1);
    std::string seen;
    for (const std::string& token : trace.tokens) {
      ASSERT_EQ(token.size(), 1U);
      logits_after(run, state, {static_cast<unsigned char>(token[0])});
      EXPECT_NEAR(trace.values[seen.size()], state.at("lstm.1.h").data<float>()[7], 1e-5);
      seen += token;
    }
    EXPECT_EQ(seen, texts.texts[i] + "\n");
    for (const auto& [wanted, name] : names)
      for (int64_t u = 0; u < 12; ++u)
        EXPECT_NEAR(features[wanted].values[i * 12 + static_cast<size_t>(u)], state.at(name).data<float>()[u], 1e-5)
            << wanted << ' ' << u;
  }
}

// Puri 2018, VI-D: each shard starts from a zero state, every token except the first is a target, and the result is the
// mean over shards.
TEST_F(LettersRun, ShardsOfStrings) {
  make_run("tokens: bytes", reviews(170, "a "));
  SavedRun run = open();
  const Dataset d = data();
  for (const int64_t count : {1, 4, 16}) {
    EvalOptions o;
    o.split = "test";
    o.shards = count;
    o.seed = 5;
    const EvalResult r = evaluate_run(path("run"), o);
    const StringShards shards = shards_of_split(d.test, d.test_strings, count, o.seed, "test");
    double mean = 0, least = INFINITY, most = 0;
    int64_t tokens = 0, lengths = 0;
    for (int64_t s = 0; s < shards.size(); ++s) {
      std::vector<int32_t> shard(static_cast<size_t>(shards.length(s)));
      shards.copy(s, 0, shards.length(s), shard.data());
      const double nll = nats(run, shard) / static_cast<double>(shard.size() - 1);
      mean += nll / static_cast<double>(count);
      least = std::min(least, nll);
      most = std::max(most, nll);
      tokens += shards.length(s) - 1;
      lengths += shards.length(s);
    }
    ASSERT_TRUE(r.sharded);
    EXPECT_EQ(r.sharded->shards, count);
    EXPECT_EQ(r.sharded->tokens, tokens);
    EXPECT_EQ(lengths, d.test.size()) << "not every string was read once";
    EXPECT_NEAR(r.sharded->nll_nat, mean, 1e-5);
    EXPECT_NEAR(r.sharded->least, least, 1e-5);
    EXPECT_NEAR(r.sharded->most, most, 1e-5);
    if (count > 1) {
      EXPECT_GT(most - least, 1e-4);
      EXPECT_GT(std::abs(r.sharded->nll_nat - r.nll_nat), 1e-4)
          << "the test cannot distinguish it from a mean over tokens";
    }
  }
}

// Counts the bytes of the text, independent of the bytes per character and of characters that became <unk>.
TEST_F(LettersRun, CompressionOfLongCharacters) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += i % 5 ? "\xD0\xB1\xD0\xB0\xD1\x80 \xD0\xBA\xD0\xBE\n" : "\xE5\xA4\xA9\xE5\x9C\xB0\xE4\xBA\xBA\n";
  make_run("tokens: chars, vocab_size: 8", text);
  const Dataset d = data();
  int64_t unknown = 0;
  for (const int32_t id : d.test.tokens()) unknown += id == Vocabulary::kUnk;
  EXPECT_GT(unknown, 0) << "the vocabulary contains all characters";
  double bytes = 0;  // lines of six characters have 12 bytes, those of three have 10, including line ends
  for (int64_t i = 0; i < d.test_strings.size(); ++i) bytes += d.test_strings.at(i).length > 5 ? 12 : 10;
  EvalOptions o;
  o.split = "test";
  const EvalResult r = evaluate_run(path("run"), o);
  ASSERT_TRUE(r.compression_ratio);
  const double code_bytes = r.nll_nat * static_cast<double>(r.tokens) / std::log(2.0) / 8;
  EXPECT_NEAR(*r.compression_ratio * code_bytes, bytes, 1e-3);
}

}  // namespace
}  // namespace lmx::app
