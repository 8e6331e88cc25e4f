// The commands that use a trained run's model, on a CUDA device and on the CPU: the results are equal up to rounding,
// wherever the run was trained.
#include "backend/cuda.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

// All numbers in a text.
std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> all;
  for (const Match& number : all_matches(text, "-?[0-9]+(\\.[0-9]+)?(e-?[0-9]+)?")) all.push_back(std::stod(number[0]));
  return all;
}

class DeviceInference : public RunTest {
 protected:
  void SetUp() override {
    if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
  // 20 steps of a recipe on the device.
  void train(const std::string& recipe, const Words& more = {}) const {
    write("tiny.yaml", recipe);
    ASSERT_THAT(run("run", joined({"device=cuda", "train.steps=20", "train.eval_every=10"}, more)), Succeeds());
  }
  // What `lmx VERB RUN ...` prints.
  std::string lmx(const std::string& verb, const Words& more) const {
    const Outcome o = run_lmx(joined({verb, path("run")}, more), environment());
    EXPECT_EQ(o.code, 0) << verb << ": " << o.err;
    return o.out;
  }
  // What the command prints on the run's own device, after a check that it also takes another one.
  std::string on_device(const std::string& verb, const Words& words) const {
    const std::string device = lmx(verb, words);
    const Outcome o = run_lmx(joined({verb, path("run"), "--device", "cuda:1000"}, words), environment());
    EXPECT_EQ(o.code, 2) << verb;
    EXPECT_THAT(o.err, Names("--device: cuda:1000 is not available")) << verb;
    return device;
  }
  std::string on_cpu(const std::string& verb, const Words& words) const {
    return lmx(verb, joined(words, {"--device", "cpu"}));
  }
  void expect_equal(const std::string& verb, const Words& words) const {
    const std::string device = on_device(verb, words);
    EXPECT_FALSE(device.empty()) << verb;
    EXPECT_EQ(device, on_cpu(verb, words)) << verb;
  }
  void expect_near(const std::string& verb, const Words& words) const {
    const std::vector<double> device = numbers_in(on_device(verb, words)), cpu = numbers_in(on_cpu(verb, words));
    ASSERT_EQ(device.size(), cpu.size()) << verb;
    EXPECT_FALSE(device.empty()) << verb;
    for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(device[i], cpu[i], tolerance_ * (1 + std::abs(cpu[i]))) << verb;
  }

  double tolerance_ = 2e-5;
};

TEST_F(DeviceInference, OfAWordModel) {
  tolerance_ = 1e-3;  // the device rounds the projected inputs as well
  train(kTinyRecipe, {"precision=bf16"});
  EXPECT_THAT(run_lmx({"average", path("mean.safetensors"), "--last", "2", path("run")}, environment()), Succeeds());
  for (const std::string which : {"last", "best", "10", "mean.safetensors"})
    expect_near("eval", {"--json", "--checkpoint", which.starts_with("mean") ? path(which) : which});
  write("text.txt", "bil sto gru\nzun\nsto gru zun bil stai grul\n");
  expect_near("eval", {"--json", "--text", path("text.txt")});
  expect_near("score", {path("text.txt")});
  expect_equal("generate", {"--tokens", "12"});
  expect_equal("generate", {"--tokens", "12", "--samples", "3", "--hold", "3=2.5", "--seed", "5"});
  EXPECT_NE(lmx("generate", {"--hold", "3=5"}), lmx("generate", {"--hold", "3=-5"}));
  // Without the library of the device: an export only copies values, and other commands can compute on the CPU.
  auto hidden = environment();
  hidden["LMX_CUDA_LIBRARY"] = "";
  for (const Words& words : {Words{"export", path("run"), "--to", "pytorch", "--output", path("exported")},
                             Words{"eval", path("run"), "--device", "cpu"}}) {
    EXPECT_THAT(run_lmx(words, hidden), Succeeds());
  }
}

TEST_F(DeviceInference, OfAByteModel) {
  std::string csv = "label,sentence\n";
  for (int i = 0; i < 60; ++i) csv += i % 2 ? "1,good film " + std::to_string(i % 7) + "\n" : "0,a bad film and dull\n";
  write("reviews.csv", csv);
  train("data: {name: text, tokens: bytes, preprocess: puri, field: sentence, files: ['" + path("reviews.csv") +
        "'], valid_fraction: 0.2}\nbatcher: {name: tbptt, sequence_length: 8, shards: 6}\nbatch: {global: 4}\n" +
        "model: {name: mlstm, embedding: 8, cells: 12}\nloss: {name: full_softmax}\n" +
        "optimizer: {name: adam, lr: 0.01}\nthreads: 1\n");
  expect_near("eval", {"--json", "--shards", "2"});
  for (const std::string device : {"cpu", "cuda"})
    lmx("features", {path("reviews.csv"), "--out", path(device + ".csv"), "--batch", "7", "--device", device});
  const std::vector<double> cpu = numbers_in(read_file(path("cpu.csv"))), own = numbers_in(read_file(path("cuda.csv")));
  ASSERT_EQ(own.size(), cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(own[i], cpu[i], 1e-5);
  expect_equal("features", {"--heatmap", path("map.html"), "--unit", "3", "--text", "a good film"});
  expect_near("probe", {"--train", path("reviews.csv"), "--penalty", "l2", "--batch", "9"});
}

TEST_F(DeviceInference, OfATranslationModel) {
  std::string source, target;
  for (int i = 0; i < 120; ++i) {
    const std::string word(1 + static_cast<size_t>(i % 3), static_cast<char>('a' + i % 7));
    source += "the " + word + " sees a " + std::string(word.rbegin(), word.rend()) + "\n";
    target += "das " + word + " sieht\n";
  }
  write("a.en", source);
  write("a.de", target);
  train("data: {name: parallel, source_language: en, target_language: de, vocab_size: 50, valid_fraction: 0.1, " +
        ("source_files: ['" + path("a.en") + "'], target_files: ['" + path("a.de") + "']}\n") +
        "batcher: {name: token_budget, max_tokens: 64}\nbatch: {global: 2}\n" +
        "model: {name: transformer, encoder_layers: 1, decoder_layers: 2, d: 16, ffn: 32, heads: 2}\n" +
        "loss: {name: full_softmax}\noptimizer: {name: adam, lr: 0.01}\nthreads: 1\n");
  write("in.en", source.substr(0, 90));
  write("in.de", target.substr(0, target.find('\n', 60) + 1));
  const std::string out = on_device("translate", {"--input", path("in.en"), "--n-best", "3", "--max-length", "1,2"});
  EXPECT_FALSE(out.empty());
  const Words four{"--input", path("in.en"), "--max-length", "1,2"};
  expect_equal("translate", four);
  expect_near("eval", {"--json"});
  write("pairs.tsv", "the a sees\tdas a sieht\nthe bb\tdas\n");
  expect_near("score", {"--tsv", path("pairs.tsv")});
}

TEST_F(DeviceInference, OfADecoderReadsMorePositionsThanOneTile) {
  train(
      "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 0, classes: 6}\n"
      "batcher: {name: random_windows, sequence_length: 8}\nbatch: {global: 8}\n"
      "model: {name: transformer, encoder_layers: 0, decoder_layers: 2, d: 16, ffn: 32, heads: 4, share: decoder}\n"
      "loss: {name: full_softmax}\noptimizer: {name: adam, lr: 0.01}\nthreads: 1\n");
  expect_equal("generate", {"--tokens", "140", "--samples", "2", "--seed", "3"});
}

}  // namespace
}  // namespace lmx_test
