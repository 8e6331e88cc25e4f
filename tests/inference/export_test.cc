// lmx export: the contents of each format's files, read back from their bytes. tools/dev/parity/export.py loads them in
// the other programs.
#include <fcntl.h>
#include <sys/file.h>

#include <cmath>
#include <csignal>

#include "app/runs/run_directory.h"
#include "lmx/launch.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using Floats = std::vector<float>;

Floats floats_at(const std::string& bytes, size_t begin, size_t size) {
  Floats values(size / sizeof(float));
  std::memcpy(values.data(), bytes.data() + begin, size);
  return values;
}

// Tensors of a safetensors file.
std::map<std::string, Floats> tensors_of(const fs::path& path) {
  const std::string file = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::map<std::string, Floats> all;
  const Json header = Json::parse(file.substr(8, length));
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    all[name] = floats_at(file, 8 + length + begin, end - begin);
  }
  return all;
}

// CTranslate2's binary format, version 6.
struct BinaryModel {
  explicit BinaryModel(const std::string& path) : file(read_file(path)) {
    version = number<uint32_t>();
    name = text();
    revision = number<uint32_t>();
    const auto variables = number<uint32_t>();
    for (uint32_t i = 0; i < variables; ++i) {
      const std::string variable = text();
      const auto rank = number<uint8_t>();
      for (int d = 0; d < rank; ++d) shapes[variable].push_back(number<uint32_t>());
      const auto type = number<uint8_t>();
      const auto bytes = number<uint32_t>();
      if (type == 0) tensors[variable] = floats_at(file, at, bytes);
      if (type == 1) scalars[variable] = static_cast<int8_t>(file.at(at));
      if (type == 2) scalars[variable] = static_cast<int>(static_cast<uint8_t>(file.at(at)));
      at += bytes;
    }
    const auto count = number<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      const std::string alias = text();
      aliases[alias] = text();
    }
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, file.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }
  std::string text() {
    const auto length = number<uint16_t>();
    const std::string value = file.substr(at, length - 1U);
    at += length;
    return value;
  }
  std::string file, name;
  size_t at = 0;
  uint32_t version = 0, revision = 0;
  std::map<std::string, std::vector<uint32_t>> shapes;
  std::map<std::string, Floats> tensors;
  std::map<std::string, int> scalars;
  std::map<std::string, std::string> aliases;
};

class Export : public RunTest {
 protected:
  Outcome export_to(const std::string& format, const std::string& run, const std::string& output) const {
    return lmx({"export", path(run), "--to", format, "--output", path(output)});
  }
  std::map<std::string, Floats> parameters(const std::string& run, int step) const {
    return tensors_of(path(run) + "/checkpoints/step-" + std::to_string(step) + "/model.safetensors");
  }
  void language_model(const std::string& model, const std::string& loss = "{name: full_softmax}") const {
    write("tiny.yaml",
          "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300}\nbatch: {global: 4}\n"
          "batcher: {name: tbptt, sequence_length: 6}\noptimizer: {name: sgd, lr: 0.1}\nthreads: 1\nmodel: " +
              model + "\nloss: " + loss + "\n");
  }
  void translation_run(const std::string& name, const Words& more = {}) {
    std::string source, target;
    for (int i = 0; i < 200; ++i) {
      source += "the " + std::string(1, static_cast<char>('a' + i % 20)) + "ko sees a lim .\n";
      target += "der " + std::string(1, static_cast<char>('a' + i % 20)) + "kor sieht einen lim .\n";
    }
    write("a.en", source);
    write("a.de", target);
    write("tiny.yaml",
          "data: {name: parallel, source_language: en, target_language: de, vocab_size: 60, source_files: [" +
              path("a.en") + "], target_files: [" + path("a.de") + "], valid_fraction: 0.1}\n" +
              "batcher: {name: token_budget, max_tokens: 300}\nbatch: {global: 1}\n" +
              "model: {name: transformer, encoder_layers: 2, decoder_layers: 1, d: 8, ffn: 12, heads: 2}\n" +
              "loss: {name: full_softmax, bias: false}\noptimizer: {name: adam, lr: 0.01}\n" +
              "train: {steps: 3}\nthreads: 1\n");
    ASSERT_THAT(run(name, more), Succeeds());
  }
};

TEST_F(Export, PyTorchHasTheWeightsAndAModule) {
  ASSERT_THAT(run("a", {"train.steps=10", "train.ema=0"}), Succeeds());
  ASSERT_THAT(export_to("pytorch", "a", "out"), Prints("wrote " + path("out") + "/model.safetensors\n"));
  EXPECT_EQ(tensors_of(path("out/model.safetensors")), parameters("a", 10));
  const Json config = Json::parse(read_file(path("out/config.json")));
  EXPECT_EQ(config["model"], "lstm");
  EXPECT_EQ(config["projection"], 8);
  EXPECT_THAT(read_file(path("out/lmx_model.py")), HasSubstr("class LSTM"));
  EXPECT_EQ(read_file(path("out/vocabulary.tsv")), read_file(path("a/vocabulary.tsv")));
}

TEST_F(Export, DraftsOfKilledExportsAreRemoved) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  for (const char* name : {".out.tmp-0", "victim", ".out.tmp-2"}) std::filesystem::create_directory(path(name));
  for (const char* name : {".out.tmp-0/model.safetensors", "victim/file"}) write(name, "text");
  std::filesystem::create_directory_symlink("victim", path(".out.tmp-1"));  // planted
  const int living = open(path(".out.tmp-2").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(living, LOCK_EX), 0);
  ASSERT_THAT(export_to("pytorch", "a", "out"), Succeeds());
  close(living);
  EXPECT_FALSE(std::filesystem::exists(path(".out.tmp-0")));
  EXPECT_EQ(read_file(path("victim/file")), "text");
  EXPECT_TRUE(std::filesystem::is_symlink(path(".out.tmp-1")));
  EXPECT_TRUE(std::filesystem::exists(path(".out.tmp-2")));
  EXPECT_EQ(std::filesystem::status(path("out")).permissions(), std::filesystem::status(path("victim")).permissions());
  const std::string longest(255, 'n');  // a name that leaves no room for another ending
  EXPECT_THAT(export_to("pytorch", "a", longest), Succeeds());
  EXPECT_TRUE(std::filesystem::exists(path(longest + "/lmx_model.py")));
}

// The plugin of a model states what an export needs; its own keys are not read.
TEST_F(Export, AModelOutsideTheTreeIsWrittenByItsTraits) {
  language_model("{name: lstm, layers: 2, embedding: 6, cells: 5, forget_bias: 0.3}");
  ASSERT_THAT(run("a", {"train.steps=3"}), Succeeds());
  ASSERT_THAT(export_to("pytorch", "a", "out_a"), Succeeds());
  const auto with_plugins = [&](Words words) {
    auto settings = environment();
    settings["LMX_PLUGIN_PATH"] = build_path("/tests/inference_plugins");
    return run_lmx(std::move(words), settings);
  };
  const auto exported = [&](const std::string& model) {
    language_model("{name: " + model + ", height: 2, vector: 6, units: 5, memory: 0.3}");
    EXPECT_THAT(with_plugins({"run", path("tiny.yaml"), "run.dir=" + path("r_" + model), "train.steps=3"}), Succeeds());
    return with_plugins({"export", path("r_" + model), "--to", "pytorch", "--output", path("out_" + model)});
  };
  ASSERT_THAT(exported("renamed_lstm"), Succeeds());
  for (const char* file : {"/model.safetensors", "/config.json", "/lmx_model.py", "/vocabulary.tsv"})
    EXPECT_EQ(read_file(path("out_renamed_lstm") + file), read_file(path("out_a") + file)) << file;
  EXPECT_THAT(exported("silent_lstm"),
              Refuses("model.name: silent_lstm", "states no architecture", "lstm, mlstm, rhn"));
  EXPECT_THAT(exported("partial_lstm"), Refuses("partial_lstm", "architecture lstm", "'forget_bias'", "no value"));
}

// w = g v / |v|: the exported module has no weight normalisation.
TEST_F(Export, WeightNormalisationIsMultipliedOut) {
  language_model("{name: mlstm, embedding: 5, cells: 6, weight_norm: 'mlstm.*'}");
  ASSERT_THAT(run("a", {"train.steps=5"}), Succeeds());
  ASSERT_THAT(export_to("pytorch", "a", "out"), Succeeds());
  const auto before = parameters("a", 5), after = tensors_of(path("out/model.safetensors"));
  EXPECT_FALSE(after.contains("mlstm.0.weight_m_v"));
  const Floats &v = before.at("mlstm.0.weight_m_v"), &g = before.at("mlstm.0.weight_m_g"),
               &w = after.at("mlstm.0.weight_m");
  ASSERT_EQ(w.size(), 24u * 6);
  for (size_t r = 0; r < 24; ++r) {
    double norm = 0;
    for (size_t c = 0; c < 6; ++c) norm += static_cast<double>(v[6 * r + c]) * v[6 * r + c];
    for (size_t c = 0; c < 6; ++c) EXPECT_NEAR(w[6 * r + c], g[r] * v[6 * r + c] / std::sqrt(norm), 1e-6);
  }
}

TEST_F(Export, CTranslate2HasEveryMatrix) {
  translation_run("a");
  ASSERT_THAT(export_to("ctranslate2", "a", "out"), Succeeds());
  const BinaryModel model(path("out/model.bin"));
  EXPECT_EQ(model.version, 6u);
  EXPECT_EQ(model.name, "TransformerSpec");
  EXPECT_EQ(model.at, model.file.size());
  const auto lmx = parameters("a", 3);
  EXPECT_EQ(model.tensors.at("encoder/layer_1/self_attention/linear_0/weight"), lmx.at("encoder.1.self.qkv.weight"));
  EXPECT_EQ(model.tensors.at("decoder/layer_0/attention/linear_1/bias"), lmx.at("decoder.0.cross.kv.bias"));
  EXPECT_EQ(model.tensors.at("decoder/layer_0/ffn/layer_norm/gamma"), lmx.at("decoder.0.ffn.norm.gain"));
  EXPECT_EQ(model.tensors.at("encoder/embeddings_0/weight"), lmx.at("embedding.weight"));
  EXPECT_EQ(model.aliases.at("decoder/projection/weight"), "encoder/embeddings_0/weight");
  EXPECT_EQ(model.scalars.at("decoder/num_heads"), 2);
  EXPECT_EQ(model.scalars.at("encoder/pre_norm"), 0);
  EXPECT_EQ(model.shapes.at("encoder/position_encodings/encodings"), (std::vector<uint32_t>{1024, 8}));
  const Floats& positions = model.tensors.at("encoder/position_encodings/encodings");
  EXPECT_NEAR(positions[3 * 8 + 1], std::sin(3 * std::pow(10000.0, -1.0 / 3)), 1e-6);
  EXPECT_NEAR(positions[3 * 8 + 5], std::cos(3 * std::pow(10000.0, -1.0 / 3)), 1e-6);
  // The export contains every parameter of the run.
  size_t values = 0, expected = 0;
  for (const auto& [name, tensor] : model.tensors)
    if (name.find("encodings") == std::string::npos) values += tensor.size();
  for (const auto& [name, tensor] : lmx) expected += tensor.size();
  EXPECT_EQ(values, expected);
  const Json words = Json::parse(read_file(path("out/shared_vocabulary.json")));
  EXPECT_EQ(words.size(), 60u);
  EXPECT_EQ(words[1], "</s>");
  EXPECT_EQ(Json::parse(read_file(path("out/config.json")))["decoder_start_token"], "</s>");
}

TEST_F(Export, MarianSplitsTheFusedProjections) {
  translation_run("a");
  ASSERT_THAT(export_to("huggingface", "a", "out"), Succeeds());
  const auto lmx = parameters("a", 3), marian = tensors_of(path("out/model.safetensors"));
  const Floats &qkv = lmx.at("encoder.0.self.qkv.weight"), &kv = lmx.at("decoder.0.cross.kv.bias");
  EXPECT_EQ(marian.at("model.encoder.layers.0.self_attn.k_proj.weight"), Floats(qkv.begin() + 64, qkv.begin() + 128));
  EXPECT_EQ(marian.at("model.decoder.layers.0.encoder_attn.v_proj.bias"), Floats(kv.begin() + 8, kv.end()));
  EXPECT_EQ(marian.at("model.shared.weight"), lmx.at("embedding.weight"));
  const Json config = Json::parse(read_file(path("out/config.json")));
  EXPECT_EQ(config["encoder_layers"], 2);
  EXPECT_EQ(config["architectures"], Json{"MarianMTModel"});
  EXPECT_EQ(Json::parse(read_file(path("out/vocab.json")))["</s>"], 1);
}

TEST_F(Export, WhatDoesNotFitIsNamed) {
  translation_run("pre", {"model.norm=pre", "model.share=none"});
  const auto refused = [&](const std::string& format, const std::string& run, const Words& parts) {
    const Outcome o = export_to(format, run, "out");
    EXPECT_EQ(o.code, 2) << o.out;
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
    EXPECT_FALSE(fs::exists(path("out")));
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp-")));
  };
  refused("huggingface", "pre", {"Marian's layout", "norm: pre", "shared tables: none"});
  refused("pytorch", "pre", {"model.name: transformer", "--to huggingface"});
  EXPECT_THAT(export_to("ctranslate2", "pre", "ct2"), Succeeds());
  EXPECT_EQ(export_to("ctranslate2", "pre", "ct2").code, 2);  // the folder is in use
  write("tiny.yaml", kTinyRecipe);
  ASSERT_THAT(run("lstm", {"train.steps=3"}), Succeeds());
  refused("ctranslate2", "lstm", {"model.name: lstm"});
  refused("huggingface", "lstm", {"model.name: lstm", "--to pytorch"});
  EXPECT_THAT(lmx({"export", path("lstm"), "--to", "pytorch", "--output", path("out"), "--positions", "8"}),
              Refuses("--positions", "Transformer", "lstm"));
  refused("onnx", "lstm", {"onnx", "ctranslate2"});
}

// The next file, or the end, notices the signal.
TEST_F(Export, ASignalRemovesTheUnfinishedFolder) {
  for (const bool at_the_end : {false, true}) {
    try {
      lmx::app::NewFolder folder("export", path("out"));
      folder.write("a", std::string_view("content"));
      std::raise(SIGTERM);
      at_the_end ? static_cast<void>(folder.finish()) : folder.write("b", std::string_view("content"));
      ADD_FAILURE() << "the signal has no effect";
    } catch (const lmx::EndProcess& e) {
      EXPECT_EQ(e.code, 143);
      EXPECT_STREQ(e.what(), "[export] SIGTERM: nothing was written");
    }
    const lmx::SignalGuard forgets_the_signal;
    for (const auto& entry : fs::directory_iterator(folder_)) EXPECT_EQ(entry.path().filename(), "tiny.yaml");
  }
}

// A decoder with the layers of GPT-2.
TEST_F(Export, Gpt2TransposesAndScales) {
  const std::string model =
      "{name: transformer, encoder_layers: 0, decoder_layers: 1, d: 8, ffn: 12, heads: 2, norm: pre}";
  language_model(model, "{name: full_softmax, bias: false}");
  const Words lm{"train.steps=3"};
  ASSERT_THAT(run("a", lm), Succeeds());
  ASSERT_THAT(lmx({"export", path("a"), "--to", "huggingface", "--output", path("out"), "--positions", "32"}),
              Succeeds());
  const auto before = parameters("a", 3), gpt2 = tensors_of(path("out/model.safetensors"));
  const Floats &w = before.at("decoder.0.ffn.in.weight"), &t = gpt2.at("transformer.h.0.mlp.c_fc.weight");
  EXPECT_EQ(w[8 * 3 + 2], t[12 * 2 + 3]);
  EXPECT_FLOAT_EQ(gpt2.at("transformer.wte.weight")[5], before.at("embedding.weight")[5] * std::sqrt(8.0F));
  EXPECT_EQ(gpt2.at("lm_head.weight"), before.at("embedding.weight"));
  EXPECT_EQ(gpt2.at("transformer.wpe.weight").size(), 32u * 8);
  // A post-norm Transformer does not fit GPT-2's layout.
  Words post = lm;
  post.push_back("model.norm=post");
  ASSERT_THAT(run("post", post), Succeeds());
  EXPECT_THAT(export_to("huggingface", "post", "none"), Refuses("GPT-2's layout", "norm: post"));
}

}  // namespace
}  // namespace lmx_test
