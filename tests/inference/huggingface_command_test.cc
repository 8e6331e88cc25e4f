// `lmx import`, and the commands that use an imported run; `lmx export` of models that lmx has trained.
#include <cmath>
#include <limits>

#include "process/run_fixture.h"
#include "train/fixture.h"

namespace lmx_test {
namespace {

// A tokenizer of 403 ids, of which 400 is <|endoftext|>.
Json tokenizer() {
  const Json file = Json::parse(read_file(source_path("/tests/data/golden/tokenizer_json.json")));
  return file["cases"][1]["tokenizer"];
}

constexpr const char* kGpt = R"(
data: {name: synthetic, vocab_size: 410, train_tokens: 3000, valid_tokens: 300}
batcher: {name: packed_windows, sequence_length: 8}
batch: {global: 4}
loss: {name: full_softmax, bias: false}
optimizer: {name: adam, lr: 0.01}
train: {steps: 3}
threads: 1
model: {name: gpt, layers: 1, d: 8, heads: 2, context: 32, )";

class Import : public RunTest {
 protected:
  std::string out(const Words& words) const {
    const Outcome o = lmx(words);
    EXPECT_THAT(o, Succeeds());
    EXPECT_EQ(o.err.find("warning"), std::string::npos) << o.err;
    return o.out;
  }
  void train(const std::string& run, const std::string& fields) const {
    write("tiny.yaml", kGpt + fields + "}\n");
    ASSERT_THAT(this->run(run), Succeeds());
  }
  std::string exported(const std::string& run, const std::string& folder, const Words& more = {}) const {
    return out(joined({"export", path(run), "--to", "huggingface", "--output", path(folder)}, more));
  }
  Json json(const std::string& file) const { return Json::parse(read_file(path(file))); }
};

// An imported model works like a run. Its table has 7 rows more than the tokenizer has tokens.
TEST_F(Import, ItsModelIsUsedLikeARun) {
  train("trained", "kv_heads: 1, rope_base: 100, tie: false");
  exported("trained", "hf");
  Json config = json("hf/config.json");
  EXPECT_EQ(config["architectures"], Json{"LlamaForCausalLM"});
  config["bos_token_id"] = 400;
  config["eos_token_id"] = {401, 7};
  config["pad_token_id"] = 405;
  write("hf/config.json", config.dump());
  write("hf/tokenizer.json", tokenizer().dump());
  const std::string settings = "{\"eos_token_id\": [401, 7], \"pad_token_id\": 405}\n";
  write("hf/generation_config.json", settings);
  write("hf/chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(out({"import", path("hf"), "--output", path("llama")}),
              Names("wrote " + path("llama"), "Llama", "vocabulary 410", "tokenizer.json"));
  EXPECT_EQ(model("llama", 0), model("trained", 3));

  std::string text;
  for (int i = 0; i < 40; ++i) text += "It's a small world " + std::to_string(i) + ".\n\n";
  write("text.txt", text);
  EXPECT_THAT(out({"eval", path("llama"), "--text", path("text.txt")}), Names("checkpoint step-0", "text bpb"));
  EXPECT_THAT(out({"score", path("llama"), path("text.txt")}), HasSubstr("\t"));
  // Some of the 300 tokens are rows without a token.
  EXPECT_THAT(out({"generate", path("llama"), "--prompt", "It's", "--tokens", "300"}), HasSubstr("It's"));

  // Text that spells a special token is ordinary text, unless the run's config says otherwise.
  write("special.txt", "<|endoftext|>\n");
  const auto scored = [&] {
    const std::string line = out({"score", path("llama"), path("special.txt")});
    return std::stoi(line.substr(line.rfind('\t')));
  };
  EXPECT_GT(scored(), 2);
  const std::string recipe = read_file(path("llama/config.yaml"));
  write("llama/config.yaml", replaced(recipe, "special_text: text", "special_text: token"));
  EXPECT_EQ(scored(), 2);  // the second one is the end of the line
  write("llama/config.yaml", recipe);

  const auto tune = [&](const std::string& run, const Words& more) {
    out(joined(
        {"run", path("llama") + "/config.yaml", "data.files=[" + path("text.txt") + "]", "data.valid_fraction=0.2",
         "train.steps=2", "run.dir=" + path(run), "batch.global=2", "batcher.sequence_length=8"},
        more));
  };
  tune("tuned", {"init.from=" + path("llama")});
  const Json init = json("tuned/provenance.json")["starts"][0]["init"];
  EXPECT_EQ(init["partly"], (Json{"embedding.weight: 403 of 403 rows", "softmax.weight: 403 of 403 rows"}));
  EXPECT_EQ(init["kept"], Json::object());

  exported("tuned", "hf_tuned");
  EXPECT_EQ(json("hf_tuned/tokenizer.json"), tokenizer());
  EXPECT_EQ(json("hf_tuned/tokenizer_config.json")["bos_token"], "<|endoftext|>");
  config = json("hf_tuned/config.json");
  EXPECT_EQ(config["vocab_size"], 403);
  EXPECT_EQ(config["eos_token_id"], (Json{401, 7}));
  EXPECT_FALSE(config.contains("pad_token_id"));  // its row has no token
  EXPECT_EQ(json("hf_tuned/generation_config.json"), Json::parse(R"({"eos_token_id": [401, 7]})"));
  EXPECT_EQ(read_file(path("hf_tuned/chat_template.jinja")), "{{ messages }}");
  // So are those of a run that starts from a checkpoint of that run, but not those for another tokenizer.
  tune("again", {"init.from=" + path("tuned/checkpoints/step-2")});
  EXPECT_EQ(read_file(path("again/huggingface/chat_template.jinja")), "{{ messages }}");
  write("other.json", tokenizer().dump(1));
  tune("other", {"init.from=" + path("llama"), "data.tokenizer_file=" + path("other.json")});
  EXPECT_FALSE(std::filesystem::exists(path("other/huggingface")));
  // The export of the import has the files of the original.
  exported("llama", "hf_again");
  EXPECT_EQ(read_file(path("hf_again/generation_config.json")), settings);
  EXPECT_EQ(read_file(path("hf_again/model.safetensors")), read_file(path("hf/model.safetensors")));
}

TEST_F(Import, WithoutATokenizerThereIsNoText) {
  train("trained", "qk_norm: true, head_size: 6");
  exported("trained", "hf");
  EXPECT_EQ(json("hf/config.json")["architectures"], Json{"Qwen3ForCausalLM"});
  EXPECT_EQ(read_file(path("hf/vocabulary.tsv")), read_file(path("trained/vocabulary.tsv")));
  EXPECT_THAT(out({"import", path("hf"), "--output", path("qwen3")}), HasSubstr("no tokenizer"));
  EXPECT_THAT(lmx({"generate", path("qwen3"), "--prompt", "a"}), Refuses("no tokenizer"));
  write("hf/config.json", "{}");
  EXPECT_THAT(lmx({"import", path("hf"), "--output", path("bad")}),
              Refuses("hf/config.json", "'model_type' is missing"));
}

// An import refuses these folders by exit code 2 and one line, and leaves nothing behind.
class RefusedImport : public Import {
 protected:
  void SetUp() override {
    train("trained", "kv_heads: 1, rope_base: 100, tie: false");
    exported("trained", "hf");
    good_ = json("hf/config.json");
  }
  std::string refused() const { return refused(path("hf"), path("bad/run")); }
  std::string refused(const std::string& from, const std::string& to) const {
    std::filesystem::create_directories(path("bad"));
    const Outcome o = lmx({"import", from, "--output", to});
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(count_of(o.err, "\n"), 1u) << o.err;
    EXPECT_TRUE(std::filesystem::is_empty(path("bad")));
    return o.err;
  }
  std::string with_config(const std::string& text) const {
    write("hf/config.json", text);
    const std::string message = refused();
    write("hf/config.json", good_.dump());
    return message;
  }
  Json good_;
};

TEST_F(RefusedImport, TwoDescriptionsOfTheFrequenciesMustAgree) {
  const auto with = [&](const Json& older, const Json& newer) {
    Json config = good_;
    config["rope_scaling"] = older;
    config["rope_parameters"] = newer;
    return config.dump();
  };
  const Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}};
  Json llama{{"rope_type", "llama3"}, {"factor", 4.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  llama["original_max_position_embeddings"] = 16;
  const Json plain{{"rope_type", "default"}, {"rope_theta", 100.0}};
  EXPECT_THAT(with_config(with(yarn, plain)), Names("hf/config.json", "rope_scaling.rope_type is \"yarn\""));
  EXPECT_THAT(with_config(with(llama, plain)), Names("rope_scaling is {", "rope_parameters", "remove one"));
  Json other = plain;
  other["rope_theta"] = 200.0;
  EXPECT_THAT(with_config(with(plain, other)), Names("rope_scaling is {", "rope_parameters"));
  write("hf/config.json", with(plain, plain));
  out({"import", path("hf"), "--output", path("run")});
}

TEST_F(RefusedImport, TextThatReadersOfJsonTakeDifferently) {
  const std::string text = good_.dump();
  EXPECT_THAT(with_config(text + std::string(1, '\0') + "{"), Names("hf/config.json is no JSON", "NUL"));
  Json nested = good_;
  nested["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_THAT(with_config(replaced(nested.dump(), "\"rope_type\"", "\"rope_type\":\"yarn\",\"rope_type\"")),
              Names("hf/config.json", "the key 'rope_type' twice"));
}

TEST_F(RefusedImport, WeightsThatAModelCannotHave) {
  const std::string file = path("hf/model.safetensors"), name = "model.norm.weight";
  const lmx::StateDict good = lmx::load_safetensors(file, lmx::Allocator::cpu());
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const auto& [type, value] : {std::pair(lmx::DType::f32, nan), std::pair(lmx::DType::f32, -infinity),
                                    std::pair(lmx::DType::bf16, infinity), std::pair(lmx::DType::f16, nan)}) {
    lmx::StateDict all = good;
    lmx::Tensor norm = good.at(name).to(lmx::DType::f32).clone();
    norm.values<float>()[7] = value;
    all.insert_or_assign(name, norm.to(type));
    lmx::save_safetensors(file, all);
    EXPECT_THAT(refused(), Names("'" + name + "'", "hf/model.safetensors", "NaN or infinite"));
  }
  const auto with_header = [&](const std::string& header) {
    const std::string length(1, static_cast<char>(header.size()));
    write("hf/model.safetensors", length + std::string(7, '\0') + header + "x");
    return refused();
  };
  const std::string type = with_header(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})");
  EXPECT_THAT(type, Names("'a'", "hf/model.safetensors", "the type F8_E4M3", "F32, BF16"));
  EXPECT_THAT(type, Not(HasSubstr("intact")));
  const std::string twice = R"({"a":{"dtype":"I8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  EXPECT_THAT(with_header(twice), Names("hf/model.safetensors", "'dtype' twice"));
  EXPECT_THAT(with_header(replaced(twice, "\"dtype\":\"I8\",", "") + std::string(1, '\0')), Names("no JSON"));
}

// The table has 410 rows, the tokenizer 403 ids.
TEST_F(RefusedImport, TokensNamedLikeRowsWithoutAToken) {
  Json file = tokenizer();
  file["added_tokens"][0]["content"] = "<no token 405>";
  write("hf/tokenizer.json", file.dump());
  EXPECT_THAT(refused(), Names("hf/tokenizer.json", "'<no token 405>'"));
}

TEST_F(RefusedImport, FoldersThatCannotBeNamed) {
  for (const std::string unnamed : {"/", ".", "./"})
    EXPECT_THAT(refused(path("hf"), unnamed), Names("[import] '" + unnamed + "' is no path that ends in the name"));
  EXPECT_THAT(refused(path("hf"), path("bad/\xFF")), Names("[import]", "not UTF-8"));
  std::filesystem::rename(path("hf"), path("h\xFF"));
  EXPECT_THAT(refused(path("h\xFF"), path("bad/run")), Names("[import]", "not UTF-8"));
}

// A text that begins with </s> and is continued by 32 tokens has 32 tokens that the model reads, and one that it does
// not read.
TEST_F(Import, PositionsThatTheModelLacksAreRefused) {
  write("tiny.yaml", std::string(kGpt) + "positions: learned}\n");
  EXPECT_THAT(run("a"), Prints("generate " + path("a") + " --tokens 32\n"));
  const auto generated = [&](const char* tokens) { return lmx({"generate", path("a"), "--tokens", tokens}); };
  EXPECT_THAT(generated("32"), Succeeds());
  EXPECT_THAT(generated("33"), Refuses("positions for 32 tokens", "--tokens must be at most 32"));
  EXPECT_EQ(generated("33").out, "");
  std::string line = "a";
  for (int i = 1; i < 31; ++i) line += " a";
  write("text.txt", line + "\n" + line + " a\n");
  const Outcome scores = lmx({"score", path("a"), path("text.txt")});
  EXPECT_THAT(scores, Warns("1 lines have more than 32 tokens", "no more positions"));
  EXPECT_THAT(scores.out, testing::EndsWith("\t32\n-inf\t-inf\t0\n"));
  train("b", "positions: rope");
  EXPECT_THAT(lmx({"generate", path("b"), "--tokens", "33"}), Succeeds());
}

// The tokenizer that lmx trains becomes a tokenizer.model, which lmx reads again.
TEST_F(Import, SubwordsOfLmxAreKept) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the small world has a wall " + std::to_string(i) + "\n\n";
  write("text.txt", text);
  write("tiny.yaml", "data: {name: text, tokens: subwords, vocab_size: 300, files: [" + path("text.txt") +
                         "], valid_fraction: 0.1}\n" + std::string(kGpt).substr(std::string(kGpt).find("batcher")) +
                         "qkv_bias: true}\n");
  ASSERT_THAT(run("a"), Succeeds());
  exported("a", "hf");
  EXPECT_EQ(read_file(path("hf/tokenizer.model")), read_file(path("a/subwords.model")));
  EXPECT_THAT(read_file(path("hf/README.txt")), Names("sentencepiece and protobuf"));
  EXPECT_EQ(json("hf/tokenizer_config.json")["add_prefix_space"], false);
  EXPECT_EQ(json("hf/config.json")["architectures"], Json{"Qwen2ForCausalLM"});
  write("hf/tokenizer.json", "{}");  // of a kind that lmx does not read, but transformers does
  EXPECT_THAT(out({"import", path("hf"), "--output", path("b")}), HasSubstr("subwords.model"));
  exported("b", "hf_b");
  EXPECT_EQ(read_file(path("hf_b/tokenizer.model")), read_file(path("a/subwords.model")));
  EXPECT_EQ(read_file(path("hf_b/tokenizer.json")), "{}");
  const auto score = [&](const std::string& run) { return out({"score", path(run), path("text.txt")}); };
  EXPECT_EQ(score("b"), score("a"));
}

TEST_F(Import, ExportsThatNoLayoutHasAreRefused) {
  const auto refused = [&](const Words& words) {
    const Outcome o = lmx(words);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_FALSE(std::filesystem::exists(path("out")));
    return o.err;
  };
  const Words to_huggingface{"export", path("a"), "--to", "huggingface", "--output", path("out")};
  train("a", "activation: gelu_tanh");
  EXPECT_THAT(refused(to_huggingface), Names("[export]", "GPT-2: model.bias is false, not true", "model.norm is rms",
                                             "Llama: model.activation is gelu_tanh, not swiglu", "Qwen2", "Qwen3"));
  std::filesystem::remove_all(path("a"));
  write("tiny.yaml", std::string(kGpt) + "tie: false}\n");
  ASSERT_THAT(run("a", {"loss.bias=true"}), Succeeds());
  EXPECT_THAT(refused(to_huggingface), Names("softmax.bias", "no place", "Llama"));
  EXPECT_THAT(refused({"export", path("a"), "--to", "ctranslate2", "--output", path("out"), "--dtype", "bf16"}),
              Names("--dtype", "huggingface"));
  EXPECT_THAT(refused(joined(to_huggingface, {"--positions", "8"})), Names("--positions", "Transformer", "gpt"));
}

}  // namespace
}  // namespace lmx_test
