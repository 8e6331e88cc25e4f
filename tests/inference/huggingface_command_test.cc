// `lmx import`, and the commands that use an imported run; `lmx export` of models that lmx has trained.
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
  EXPECT_THAT(out({"eval", path("llama"), "--text", path("text.txt")}), Names("checkpoint last", "text bpb"));
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
  EXPECT_THAT(lmx({"generate", path("qwen3"), "--prompt", "a"}), Refuses("without a tokenizer"));
  write("hf/config.json", "{}");
  EXPECT_THAT(lmx({"import", path("hf"), "--output", path("bad")}),
              Refuses("hf/config.json", "'model_type' is missing"));
}

// A text that begins with </s> and is continued by 32 tokens has 32 tokens that the model reads, and one that it does
// not read.
TEST_F(Import, PositionsThatTheModelLacksAreRefused) {
  train("a", "positions: learned");
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
}

}  // namespace
}  // namespace lmx_test
