// lmx import and lmx export for the layouts of GPT-2, Llama, Qwen2 and Qwen3: tensors bit by bit, and what is refused.
// tools/dev/parity/huggingface.py compares the logits with those of transformers.
#include "app/huggingface/import.h"

#include <cstring>

#include "app/export/export.h"
#include "app/huggingface/layouts.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "process/run_fixture.h"
#include "train/fixture.h"

namespace lmx::app::huggingface {
namespace {

using namespace lmx_test;

// A model of transformers: config.json, and the tensors that it asks for.
struct Model {
  Json config;
  std::vector<std::pair<std::string, Shape>> tensors;
};

Model gpt2() {
  Model m{{{"model_type", "gpt2"},
           {"vocab_size", 16},
           {"n_layer", 1},
           {"n_embd", 8},
           {"n_head", 2},
           {"n_positions", 9},
           {"n_inner", 32},
           {"activation_function", "gelu_new"},
           {"layer_norm_epsilon", 1e-5},
           {"embd_pdrop", 0.1},
           {"attn_pdrop", 0.1},
           {"resid_pdrop", 0.1},
           {"bos_token_id", 3}},
          {{"wte.weight", {16, 8}}, {"wpe.weight", {9, 8}}, {"ln_f.weight", {8}}, {"ln_f.bias", {8}}}};
  const std::vector<std::pair<std::string, std::vector<Shape>>> layer{
      {"ln_1", {{8}, {8}}},           {"ln_2", {{8}, {8}}},          {"attn.c_attn", {{8, 24}, {24}}},
      {"attn.c_proj", {{8, 8}, {8}}}, {"mlp.c_fc", {{8, 32}, {32}}}, {"mlp.c_proj", {{32, 8}, {8}}}};
  for (const auto& [name, shapes] : layer) {
    m.tensors.emplace_back("h.0." + name + ".weight", shapes[0]);
    m.tensors.emplace_back("h.0." + name + ".bias", shapes[1]);
  }
  for (auto& [name, shape] : m.tensors) name = "transformer." + name;
  return m;
}

// Heads of `size` elements, 4 for queries and 2 for keys and values.
Model llama_like(const std::string& type, int64_t size, bool tie) {
  Model m{{{"model_type", type},
           {"vocab_size", 16},
           {"num_hidden_layers", 2},
           {"hidden_size", 8},
           {"num_attention_heads", 4},
           {"num_key_value_heads", 2},
           {"head_dim", size},
           {"intermediate_size", 10},
           {"max_position_embeddings", 64},
           {"rms_norm_eps", 1e-5},
           {"hidden_act", "silu"},
           {"rope_theta", 500000.0},
           {"rope_scaling", nullptr},
           {"tie_word_embeddings", tie},
           {"bos_token_id", 3}},
          {{"model.embed_tokens.weight", {16, 8}}, {"model.norm.weight", {8}}}};
  if (!tie) m.tensors.push_back({"lm_head.weight", {16, 8}});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::pair<const char*, Shape> own[] = {{"input_layernorm", {8}},
                                                 {"post_attention_layernorm", {8}},
                                                 {"self_attn.q_proj", {4 * size, 8}},
                                                 {"self_attn.k_proj", {2 * size, 8}},
                                                 {"self_attn.v_proj", {2 * size, 8}},
                                                 {"self_attn.o_proj", {8, 4 * size}},
                                                 {"mlp.gate_proj", {10, 8}},
                                                 {"mlp.up_proj", {10, 8}},
                                                 {"mlp.down_proj", {8, 10}}};
    for (const auto& [name, shape] : own) m.tensors.emplace_back(str(layer, name, ".weight"), shape);
  }
  return m;
}

void add_biases(Model& m, const Words& linears) {
  const auto all = m.tensors;
  for (const auto& [name, shape] : all)
    for (const std::string& linear : linears)
      if (name.ends_with(linear + ".weight")) {
        std::string bias = name;
        m.tensors.emplace_back(bias.replace(name.size() - 6, 6, "bias"), Shape{shape[0]});
      }
}

Model llama() {
  Model m = llama_like("llama", 2, false);
  m.config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 32}};
  return m;
}

Model llama_with_biases() {
  Model m = llama_like("llama", 2, true);
  m.config["attention_bias"] = m.config["mlp_bias"] = true;
  add_biases(m, {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  return m;
}

Model qwen2() {
  Model m = llama_like("qwen2", 2, true);
  m.config["use_sliding_window"] = false;
  m.config["sliding_window"] = 4096;
  add_biases(m, {"q_proj", "k_proj", "v_proj"});
  return m;
}

Model qwen3() {
  Model m = llama_like("qwen3", 6, false);
  m.config["attention_bias"] = false;
  m.config["layer_types"] = {"full_attention", "full_attention"};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."})
    for (const char* norm : {"q_norm", "k_norm"})
      m.tensors.emplace_back(str(layer, "self_attn.", norm, ".weight"), Shape{6});
  return m;
}

std::vector<Model> all_models() {
  return {gpt2(), llama(), llama_with_biases(), qwen2(), qwen3()};
}

StateDict random_tensors(const Model& m, DType type) {
  StateDict tensors;
  uint64_t number = 0;
  for (const auto& [name, shape] : m.tensors) {
    Tensor t = Tensor::empty(Allocator::cpu(), shape, DType::f32, MemClass::other);
    for (float& x : t.values<float>()) x = static_cast<float>(RandomKey(7).normal(number++));
    tensors.emplace(name, t.to(type));
  }
  return tensors;
}

// Names, shapes, types and bits.
std::map<std::string, std::string> bits_of(const StateDict& tensors) {
  std::map<std::string, std::string> bits;
  for (const auto& [name, t] : tensors)
    bits[name] = str(describe(t), ' ', std::string(static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes())));
  return bits;
}

class HuggingFace : public lmx_test::RunTest {
 protected:
  HuggingFace() { load_plugins(); }
  void save(const std::string& folder, const Model& m, const StateDict& tensors) const {
    std::filesystem::create_directories(path(folder));
    write(folder + "/config.json", m.config.dump());
    save_safetensors(path(folder + "/model.safetensors"), tensors);
  }
  void save(const std::string& folder, const Model& m) const { save(folder, m, random_tensors(m, DType::f32)); }
  ImportReport import(const std::string& folder, const std::string& run) const {
    return import_huggingface(path(folder), path(run));
  }
  void export_to(const std::string& run, const std::string& folder, const std::string& dtype = "f32") const {
    ExportOptions options;
    options.to = "huggingface";
    options.output = path(folder);
    options.dtype = dtype;
    export_run(path(run), options);
  }
  StateDict tensors(const std::string& file) const { return load_safetensors(path(file), Allocator::cpu()); }
  StateDict parameters(const std::string& run) const { return tensors(run + "/checkpoints/step-0/model.safetensors"); }
  Json config(const std::string& folder) const {
    return Json::parse(lmx_test::read_file(path(folder + "/config.json")));
  }
  // The message of a failed import, which leaves nothing behind.
  std::string refused(const std::string& folder) const {
    const std::string text = user_error([&] { import(folder, "refused"); });
    EXPECT_FALSE(std::filesystem::exists(path("refused")));
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr(".tmp-")));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0) << text;
    return text;
  }
  std::string refused(const Model& m) const {
    save("bad", m);
    return refused("bad");
  }
};

// Model, run, model, run: both models are equal, and both runs.
TEST_F(HuggingFace, ImportsAndExportsAreInverse) {
  int number = 0;
  for (const Model& m : all_models())
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const std::string n = std::to_string(number++), dtype(name_of(type));
      SCOPED_TRACE(str(m.config["model_type"], ' ', dtype));
      const StateDict before = random_tensors(m, type);
      save("in" + n, m, before);
      import("in" + n, "run" + n);
      export_to("run" + n, "out" + n, dtype);
      EXPECT_EQ(bits_of(tensors("out" + n + "/model.safetensors")), bits_of(before));
      const Json after = config("out" + n);
      for (const auto& [key, value] : m.config.items()) {
        if (key == "sliding_window" || key == "layer_types") continue;
        EXPECT_EQ(after.at(key), value) << key;
      }
      import("out" + n, "again" + n);
      EXPECT_EQ(bits_of(parameters("again" + n)), bits_of(parameters("run" + n)));
      EXPECT_EQ(lmx_test::read_file(path("again" + n + "/vocabulary.tsv")),
                lmx_test::read_file(path("run" + n + "/vocabulary.tsv")));
      const auto model = [&](const std::string& run) {
        return to_json(*parse_yaml_file(path(run + n + "/config.yaml")).find("model"));
      };
      EXPECT_EQ(model("again"), model("run"));
    }
}

// A vocabulary of lmx has one token for both ends of a text; Llama 3 has two.
TEST_F(HuggingFace, AnExportKeepsTheSpecialIdsOfTheImport) {
  Model m = llama();
  m.config["bos_token_id"] = 3;
  m.config["eos_token_id"] = {4, 5};
  m.config["pad_token_id"] = 6;
  save("in", m);
  import("in", "run");
  export_to("run", "out", "f32");
  const Json after = config("out");
  EXPECT_EQ(after.at("bos_token_id"), 3);
  EXPECT_EQ(after.at("eos_token_id"), Json({4, 5}));
  EXPECT_EQ(after.at("pad_token_id"), 6);
}

Tensor row(const Tensor& matrix, int64_t r) {
  return matrix.slice(r, r + 1);
}

void expect_equal(const Tensor& a, const Tensor& b) {
  const auto x = a.values<float>(), y = b.values<float>();
  EXPECT_EQ(std::vector<float>(x.begin(), x.end()), std::vector<float>(y.begin(), y.end()));
}

TEST_F(HuggingFace, TensorsHaveTheirPlaces) {
  save("llama", llama());
  import("llama", "a");
  StateDict in = tensors("llama/model.safetensors"), own = parameters("a");
  const std::string layer = "model.layers.1.";
  const Tensor qkv = own.at("layer.1.attention.qkv.weight"), ffn = own.at("layer.1.ffn.in.weight");
  expect_equal(row(qkv, 3), row(in.at(layer + "self_attn.q_proj.weight"), 3));
  expect_equal(row(qkv, 8 + 1), row(in.at(layer + "self_attn.k_proj.weight"), 1));
  expect_equal(row(qkv, 12 + 2), row(in.at(layer + "self_attn.v_proj.weight"), 2));
  expect_equal(row(ffn, 4), row(in.at(layer + "mlp.gate_proj.weight"), 4));
  expect_equal(row(ffn, 10 + 4), row(in.at(layer + "mlp.up_proj.weight"), 4));
  expect_equal(own.at("layer.1.ffn_norm.gain"), in.at(layer + "post_attention_layernorm.weight"));
  expect_equal(own.at("softmax.weight"), in.at("lm_head.weight"));
  save("gpt2", gpt2());
  import("gpt2", "b");
  in = tensors("gpt2/model.safetensors"), own = parameters("b");
  expect_equal(own.at("layer.0.ffn.in.weight"), transposed(in.at("transformer.h.0.mlp.c_fc.weight")));
  expect_equal(own.at("layer.0.attention.qkv.bias"), in.at("transformer.h.0.attn.c_attn.bias"));
  expect_equal(own.at("positions.weight"), in.at("transformer.wpe.weight"));
  expect_equal(own.at("norm.bias"), in.at("transformer.ln_f.bias"));
}

// Files of the model without its output layer have shorter names, and older ones the masks of the attention. A config
// may leave out what follows from the rest.
TEST_F(HuggingFace, OlderFilesAreRead) {
  Model m = gpt2();
  for (const char* key : {"n_inner", "activation_function", "embd_pdrop", "attn_pdrop", "resid_pdrop"})
    m.config.erase(key);
  save("a", m);
  StateDict shorter;
  for (const auto& [name, t] : random_tensors(m, DType::f32)) shorter.emplace(name.substr(name.find('.') + 1), t);
  for (const char* mask : {"h.0.attn.bias", "h.0.attn.masked_bias"})
    shorter.emplace(mask, Tensor::zeros(Allocator::cpu(), {1, 1, 9, 9}, DType::u8, MemClass::other));
  save("b", m, shorter);
  import("a", "run_a");
  import("b", "run_b");
  EXPECT_EQ(bits_of(parameters("run_b")), bits_of(parameters("run_a")));
  // A tied model may repeat its table.
  StateDict repeated = random_tensors(m, DType::f32);
  repeated.emplace("lm_head.weight", repeated.at("transformer.wte.weight"));
  save("c", m, repeated);
  import("c", "run_c");
  EXPECT_EQ(bits_of(parameters("run_c")), bits_of(parameters("run_a")));
}

TEST_F(HuggingFace, SeveralFilesAreOneModel) {
  const Model m = qwen3();
  save("whole", m);
  save("parts", m);
  std::filesystem::remove(path("parts/model.safetensors"));
  StateDict halves[2];
  Json index{{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
  size_t number = 0;
  for (const auto& [name, t] : random_tensors(m, DType::f32)) {
    const size_t half = number++ % 2;
    halves[half].emplace(name, t);
    index["weight_map"][name] = str("model-0000", half + 1, "-of-00002.safetensors");
  }
  const auto save_index = [&] { write("parts/model.safetensors.index.json", index.dump()); };
  const std::string second = path("parts/model-00002-of-00002.safetensors");
  save_safetensors(path("parts/model-00001-of-00002.safetensors"), halves[0]);
  save_safetensors(second, halves[1]);
  save_index();
  import("whole", "a");
  import("parts", "b");
  EXPECT_EQ(bits_of(parameters("b")), bits_of(parameters("a")));

  std::filesystem::remove(second);
  EXPECT_THAT(refused("parts"), Names("model-00002-of-00002.safetensors"));
  const std::string lost = halves[1].begin()->first, twice = halves[0].begin()->first;
  halves[1].erase(lost);
  save_safetensors(second, halves[1]);
  EXPECT_THAT(refused("parts"), Names("index.json", "'" + lost + "'", "model-00002"));
  halves[1].emplace(twice, halves[0].at(twice));
  save_safetensors(second, halves[1]);
  EXPECT_THAT(refused("parts"), Names("'" + twice + "'", "model-00001", "model-00002"));
  index["weight_map"][lost] = "../whole/model.safetensors";
  save_index();
  EXPECT_THAT(refused("parts"), Names("'" + lost + "'", "../whole"));
  write("parts/model.safetensors.index.json", "{\"weight_map\": []}");
  EXPECT_THAT(refused("parts"), Names("index.json", "weight_map"));
  std::filesystem::remove(path("parts/model.safetensors.index.json"));
  EXPECT_THAT(refused("parts"), Names("parts has neither model.safetensors nor model.safetensors.index.json"));
}

struct BadConfig {
  Model (*model)();
  const char* key;
  Json value;
  Words facts;
};

TEST_F(HuggingFace, ConfigsThatLmxCannotRepresentAreRefused) {
  const Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}};
  const Json partial{{"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}};
  const std::vector<BadConfig> bad{
      {gpt2, "model_type", "bert", {"model_type is \"bert\"", "gpt2, llama, qwen2, qwen3"}},
      {gpt2, "model_type", 5, {"model_type is 5", "text"}},
      {gpt2, "activation_function", "relu", {"activation_function is \"relu\"", "gelu_new"}},
      {gpt2, "scale_attn_weights", false, {"scale_attn_weights is false"}},
      {gpt2, "scale_attn_by_inverse_layer_idx", true, {"scale_attn_by_inverse_layer_idx is true"}},
      {gpt2, "add_cross_attention", true, {"add_cross_attention is true"}},
      {gpt2, "resid_pdrop", 0.2, {"embd_pdrop is 0.1", "resid_pdrop is 0.2", "one value"}},
      {gpt2, "n_head", 3, {"config.json", "d 8", "heads 3"}},
      {gpt2, "n_layer", 0, {"n_layer is 0", "at least 1"}},
      {gpt2, "n_layer", 1.5, {"n_layer is 1.5", "integer"}},
      {gpt2, "n_embd", nullptr, {"'n_embd' is missing"}},
      {gpt2, "vocab_size", "16", {"vocab_size is \"16\"", "integer"}},
      {gpt2, "vocab_size", 10000000000, {"vocab_size is 10000000000", "at most 16777216"}},
      {gpt2, "bos_token_id", "x", {"bos_token_id is \"x\"", "integer"}},
      {gpt2, "bos_token_id", {1, 2}, {"bos_token_id is [1,2]", "integer"}},
      {gpt2, "quantization_config", {{"bits", 4}}, {"quantization_config is {\"bits\":4}"}},
      {llama, "attention_bias", true, {"attention_bias is true", "mlp_bias is false"}},
      {llama, "hidden_act", "gelu", {"hidden_act is \"gelu\"", "silu"}},
      {llama, "attention_dropout", 0.1, {"attention_dropout is 0.1"}},
      {llama, "sliding_window", 4096, {"sliding_window is 4096"}},
      {llama, "rope_scaling", yarn, {"rope_scaling.rope_type is \"yarn\"", "llama3"}},
      {llama, "rope_scaling", {{"rope_type", "llama3"}}, {"rope_scaling.", "'factor' is missing"}},
      {llama, "rope_scaling", "linear", {"rope_scaling is \"linear\"", "object"}},
      {llama, "rope_parameters", partial, {"rope_parameters.partial_rotary_factor is 0.5"}},
      {llama, "rope_theta", 0.5, {"rope_base", "0.5"}},
      {llama, "num_key_value_heads", 3, {"kv_heads 3", "heads 4"}},
      {llama, "auto_map", {{"AutoModel", "x.py"}}, {"auto_map"}},
      {qwen2, "use_sliding_window", true, {"use_sliding_window is true"}},
      {qwen3, "attention_bias", true, {"attention_bias is true"}},
      {qwen3, "layer_types", {"full_attention", "sliding_attention"}, {"layer_types", "sliding_attention"}},
      {qwen3, "tie_word_embeddings", "yes", {"tie_word_embeddings is \"yes\"", "true or false"}},
  };
  for (const BadConfig& one : bad) {
    Model m = one.model();
    m.config[one.key] = one.value;
    const std::string text = refused(m);
    EXPECT_THAT(text, Names("[import]", path("bad/config.json"))) << one.key;
    for (const std::string& fact : one.facts) EXPECT_THAT(text, Names(fact));
  }
}

TEST_F(HuggingFace, BadFilesAreRefused) {
  EXPECT_THAT(refused("nowhere"), Names("no folder", "nowhere", "hf download"));
  save("bad", gpt2());
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"{", "no JSON"},
           {"[]", "no JSON object"},
           {"{\"model_type\": \"gpt2\", \"model_type\": \"llama\"}", "'model_type' twice"},
           {"{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "too deeply"}}) {
    write("bad/config.json", text);
    EXPECT_THAT(refused("bad"), Names("bad/config.json", why));
  }
  std::filesystem::remove(path("bad/config.json"));
  EXPECT_THAT(refused("bad"), Names("bad has no config.json"));
  save("bad", gpt2());
  const std::string whole = lmx_test::read_file(path("bad/model.safetensors"));
  write("bad/model.safetensors", whole.substr(0, whole.size() - 5));
  EXPECT_THAT(refused("bad"), Names("bad/model.safetensors", "truncated"));
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
  write("bad/model.safetensors", pointer);
  EXPECT_THAT(refused("bad"), Names("bad/model.safetensors", "Git LFS", "`git lfs pull`"));
  write("bad/model.safetensors", whole);
  write("bad/tokenizer.json", "<html>");
  EXPECT_THAT(refused("bad"), Names("bad/tokenizer.json is no JSON"));
  write("bad/tokenizer.json", "{}");
  EXPECT_THAT(refused("bad"), Names("bad/tokenizer.json", "'model'"));
  const Json golden = Json::parse(lmx_test::read_file(lmx_test::source_path("/tests/data/golden/tokenizer_json.json")));
  write("bad/tokenizer.json", golden["cases"][1]["tokenizer"].dump());
  EXPECT_THAT(refused("bad"), Names("bad/tokenizer.json", "403 ids", "vocab_size 16"));
}

TEST_F(HuggingFace, TensorsThatDoNotBelongToTheConfigAreRefused) {
  const auto refused_with = [&](const Model& m, const std::string& name, const std::optional<Tensor>& tensor) {
    StateDict all = random_tensors(m, DType::f32);
    all.erase(name);
    if (tensor) all.emplace(name, *tensor);
    save("bad", m, all);
    return refused("bad");
  };
  const auto zeros = [](const Shape& shape, DType type = DType::f32) {
    return Tensor::zeros(Allocator::cpu(), shape, type, MemClass::other);
  };
  const std::string k = "model.layers.1.self_attn.k_proj.weight";
  EXPECT_THAT(refused_with(llama(), k, {}), Names("bad/model.safetensors", "no tensor '" + k + "'", "(4, 8)"));
  EXPECT_THAT(refused_with(llama(), k, zeros({8, 8})), Names("'" + k + "'", "(8, 8)", "(4, 8)"));
  EXPECT_THAT(refused_with(llama(), k, zeros({4, 8}, DType::i32)), Names("'" + k + "'", "i32", "bf16"));
  EXPECT_THAT(refused_with(gpt2(), "transformer.h.0.mlp.c_fc.weight", zeros({32, 8})), Names("(32, 8)", "(8, 32)"));
  EXPECT_THAT(refused_with(llama(), "model.layers.2.mlp.up_proj.weight", zeros({10, 8})),
              Names("'model.layers.2.mlp.up_proj.weight' (10, 8)", "no place", "Llama"));
  EXPECT_THAT(refused_with(qwen2(), "lm_head.weight", zeros({16, 8})),
              Names("tie_word_embeddings", "'lm_head.weight'"));
  EXPECT_THAT(refused_with(qwen2(), "embed_tokens.weight", zeros({16, 8})),
              Names("'model.embed_tokens.weight'", "'embed_tokens.weight'"));
}

TEST_F(HuggingFace, AFolderInUseIsRefused) {
  save("a", gpt2());
  import("a", "run");
  EXPECT_THAT(user_error([&] { import("a", "run"); }), Names("[import]", "run exists"));
  import("a", "above/run");
  EXPECT_TRUE(std::filesystem::exists(path("above/run/config.yaml")));
}

TEST_F(HuggingFace, ValuesThatATypeCannotRepresentAreRefused) {
  const Model m = qwen2();
  StateDict all = random_tensors(m, DType::f32);
  float& value = all.at("model.norm.weight").values<float>()[3];
  value = -70'000;
  save("in", m, all);
  import("in", "run");
  EXPECT_THAT(user_error([&] { export_to("run", "out", "f16"); }), Names("model.norm.weight", "65504", "bf16"));
  export_to("run", "out", "bf16");
  value = 3.4e38f;  // rounds to infinity in bf16
  save("in2", m, all);
  import("in2", "run2");
  EXPECT_THAT(user_error([&] { export_to("run2", "out2", "bf16"); }), Names("model.norm.weight", "bf16", "use f32"));
  export_to("run2", "out2", "f32");
}

// Both spellings of the frequencies: transformers 4 and 5.
TEST_F(HuggingFace, RotaryKeysHaveTwoSpellings) {
  const Model m = llama();
  Json newer = m.config;
  newer["rope_parameters"] = newer["rope_scaling"];
  newer["rope_parameters"]["rope_theta"] = newer["rope_theta"];
  newer.erase("rope_scaling");
  newer.erase("rope_theta");
  const Layout& layout = layout_of(newer, "c");
  const GptFields fields = fields_of(layout, newer, "c");
  EXPECT_EQ(fields, fields_of(layout, m.config, "c"));
  EXPECT_EQ(parse_double(fields.at("rope_base")), 500000);
  EXPECT_EQ(parse_double(fields.at("rope_scaling.factor")), 8);
  EXPECT_EQ(fields.at("rope_scaling.original"), "32");
  Json older = m.config;
  older["rope_scaling"]["type"] = older["rope_scaling"]["rope_type"];
  older["rope_scaling"].erase("rope_type");
  EXPECT_EQ(fields_of(layout, older, "c"), fields);
}

}  // namespace
}  // namespace lmx::app::huggingface
