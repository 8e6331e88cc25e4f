// Writes models in layouts of Hugging Face's transformers: an encoder-decoder like Marian, a decoder like GPT-2, and
// the model `gpt` in one of the layouts GPT-2, Llama, Qwen2 and Qwen3.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/export/export.h"
#include "app/huggingface/import.h"
#include "app/huggingface/layouts.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

using Json = nlohmann::ordered_json;

// Tensors with the names that transformers expects.
class Layout {
 public:
  Layout(const ExportSource& source) : source_(source) {}
  void add(const std::string& name, Tensor tensor) { tensors_.emplace(name, std::move(tensor)); }
  void add(const std::string& name, const std::string& parameter) { add(name, source_.at(parameter)); }
  void norm(const std::string& name, const std::string& parameter) {
    add(name + ".weight", parameter + ".gain");
    add(name + ".bias", parameter + ".bias");
  }
  void linear(const std::string& name, const std::string& parameter) {
    add(name + ".weight", parameter + ".weight");
    add(name + ".bias", parameter + ".bias");
  }
  // GPT-2's "Conv1D": the same linear map with a transposed matrix (in, out).
  void conv(const std::string& name, const std::string& parameter) {
    add(name + ".weight", huggingface::transposed(source_.at(parameter + ".weight")));
    add(name + ".bias", parameter + ".bias");
  }
  // Adds one of `parts` linear maps whose rows are stored as consecutive blocks of one matrix.
  void part(const std::string& name, const std::string& parameter, int64_t part, int64_t parts) {
    add(name + ".weight", rows_of(source_.at(parameter + ".weight"), part, parts));
    add(name + ".bias", rows_of(source_.at(parameter + ".bias"), part, parts));
  }
  const StateDict& tensors() const { return tensors_; }

 private:
  const ExportSource& source_;
  StateDict tensors_;
};

void add_marian_layers(Layout& to, const std::string& side, int64_t layers) {
  for (int64_t l = 0; l < layers; ++l) {
    const std::string name = str("model.", side, ".layers.", l, "."), from = str(side, ".", l, ".");
    const char* projections[] = {"q_proj", "k_proj", "v_proj"};
    for (int64_t i = 0; i < 3; ++i) to.part(str(name, "self_attn.", projections[i]), from + "self.qkv", i, 3);
    to.linear(name + "self_attn.out_proj", from + "self.out");
    to.norm(name + "self_attn_layer_norm", from + "self.norm");
    if (side == "decoder") {
      to.linear(name + "encoder_attn.q_proj", from + "cross.q");
      to.part(name + "encoder_attn.k_proj", from + "cross.kv", 0, 2);
      to.part(name + "encoder_attn.v_proj", from + "cross.kv", 1, 2);
      to.linear(name + "encoder_attn.out_proj", from + "cross.out");
      to.norm(name + "encoder_attn_layer_norm", from + "cross.norm");
    }
    to.linear(name + "fc1", from + "ffn.in");
    to.linear(name + "fc2", from + "ffn.out");
    to.norm(name + "final_layer_norm", from + "ffn.norm");
  }
}

StateDict marian_tensors(const ExportSource& source, const TransformerShape& shape) {
  Layout to(source);
  to.add("model.shared.weight", shape.source_table());
  const Tensor positions = position_table(source.positions(), shape.d);
  to.add("model.encoder.embed_positions.weight", positions);
  to.add("model.decoder.embed_positions.weight", positions);
  add_marian_layers(to, "encoder", shape.encoder_layers);
  add_marian_layers(to, "decoder", shape.decoder_layers);
  const int64_t words = source.vocabulary.size();
  Tensor bias = Tensor::zeros(Allocator::cpu(), {1, words}, DType::f32, MemClass::other);
  if (source.has("softmax.bias")) bias = source.at("softmax.bias").reshape({1, words});
  to.add("final_logits_bias", bias);
  return to.tensors();
}

Json marian_config(const ExportSource& source, const TransformerShape& s) {
  const int64_t words = source.vocabulary.size();
  return {{"architectures", {"MarianMTModel"}},
          {"model_type", "marian"},
          {"is_encoder_decoder", true},
          {"vocab_size", words},
          {"decoder_vocab_size", words},
          {"d_model", s.d},
          {"encoder_layers", s.encoder_layers},
          {"decoder_layers", s.decoder_layers},
          {"encoder_attention_heads", s.heads},
          {"decoder_attention_heads", s.heads},
          {"encoder_ffn_dim", s.ffn},
          {"decoder_ffn_dim", s.ffn},
          {"dropout", s.dropout},
          {"attention_dropout", s.attention_dropout},
          {"activation_dropout", s.relu_dropout},
          {"activation_function", "relu"},
          {"scale_embedding", true},
          {"static_position_embeddings", true},
          {"normalize_before", false},
          {"normalize_embedding", false},
          {"add_final_layer_norm", false},
          {"max_position_embeddings", source.positions()},
          {"share_encoder_decoder_embeddings", true},
          {"tie_word_embeddings", true},
          {"bos_token_id", Vocabulary::kEos},
          {"eos_token_id", Vocabulary::kEos},
          {"pad_token_id", Vocabulary::kEos},
          {"decoder_start_token_id", Vocabulary::kEos},
          {"forced_eos_token_id", Vocabulary::kEos},
          {"torch_dtype", torch_type(source)}};
}

Json vocabulary_json(const Vocabulary& vocabulary) {
  Json ids = Json::object();
  for (int32_t i = 0; i < vocabulary.size(); ++i) ids[vocabulary.word(i)] = i;
  return ids;
}

constexpr const char* kMarianReadMe = R"(A translation model in Marian's layout for Hugging Face's transformers.

    import torch, transformers
    model = transformers.MarianMTModel.from_pretrained(".")
    tokenizer = transformers.MarianTokenizer.from_pretrained(".")
    batch = tokenizer(["a dog runs ."], return_tensors="pt", padding=True)
    out = model.generate(**batch, num_beams=4, bad_words_ids=[[0]])
    print(tokenizer.batch_decode(out, skip_special_tokens=True))

The text must be prepared as the run's text was before it is cut into subwords: codecs.json says how (tokenized by the
rules of Moses if "moses" is true, in lower case if "lower_case" is true). `lmx translate` does both by itself.

Padding and the decoder's start are </s> (id 1): give the attention mask of padded sources, as the tokenizer does.
The positions in model.safetensors differ from those that Marian computes itself; they must be loaded from the file.
)";

constexpr const char* kGpt2ReadMe = R"(A language model in GPT-2's layout for Hugging Face's transformers.

    import torch, transformers
    model = transformers.GPT2LMHeadModel.from_pretrained(".").eval()
    words = [line.rsplit("\t", 1)[0] for line in open("vocabulary.tsv", encoding="utf-8")]
    ids = {word: i for i, word in enumerate(words)}
    text = torch.tensor([[1] + [ids.get(word, 0) for word in "the old man".split()]])
    logits = model(text).logits

Id 0 is <unk>, id 1 is </s>, the end of a line, behind which a text begins; of a model of bytes id i is byte i.
)";

}  // namespace

void export_marian(const ExportSource& source, NewFolder& folder) {
  Misfits misfits;
  const TransformerShape shape = read_transformer(source, misfits);
  if (shape.d > 0) {
    misfits.require(!shape.pre(), "the model's norm", "pre; Marian's layers normalise after each sum (post)");
    misfits.require(shape.share == "all", "the model's shared tables",
                    str(shape.share, "; Marian's layout holds one table for source, target and output (all)"));
  }
  misfits.check(source.directory, "Marian's layout");
  save_weights(source, folder, marian_tensors(source, shape));
  folder.write("config.json", marian_config(source, shape));
  folder.write("generation_config.json", Json{{"bos_token_id", Vocabulary::kEos},
                                              {"decoder_start_token_id", Vocabulary::kEos},
                                              {"eos_token_id", Vocabulary::kEos},
                                              {"pad_token_id", Vocabulary::kEos},
                                              {"forced_eos_token_id", Vocabulary::kEos},
                                              {"num_beams", 4},
                                              {"max_length", std::min<int64_t>(source.positions(), 512)},
                                              {"bad_words_ids", Json::array({Json::array({Vocabulary::kUnk})})}});
  folder.write("vocab.json", vocabulary_json(source.vocabulary));
  folder.write("tokenizer_config.json", Json{{"tokenizer_class", "MarianTokenizer"},
                                             {"source_lang", "source"},
                                             {"target_lang", "target"},
                                             {"unk_token", "<unk>"},
                                             {"eos_token", "</s>"},
                                             {"pad_token", "</s>"},
                                             {"model_max_length", source.positions()}});
  for (const char* name : {"source.spm", "target.spm"}) folder.copy(source.directory + "/" + kSubwordFile, name);
  folder.copy(source.directory + "/" + kCodecFile, kCodecFile);
  folder.write("README.txt", std::string_view(export_note(source, kMarianReadMe)));
}

namespace {

StateDict gpt2_tensors(const ExportSource& source, const TransformerShape& shape) {
  Layout to(source);
  // GPT-2 does not scale embeddings, so the input table contains scaled rows and differs from the output table.
  to.add("transformer.wte.weight", scaled(source.at(shape.target_table()), std::sqrt(static_cast<double>(shape.d))));
  to.add("transformer.wpe.weight", position_table(source.positions(), shape.d));
  for (int64_t l = 0; l < shape.decoder_layers; ++l) {
    const std::string name = str("transformer.h.", l, "."), from = str("decoder.", l, ".");
    to.norm(name + "ln_1", from + "self.norm");
    to.conv(name + "attn.c_attn", from + "self.qkv");
    to.conv(name + "attn.c_proj", from + "self.out");
    to.norm(name + "ln_2", from + "ffn.norm");
    to.conv(name + "mlp.c_fc", from + "ffn.in");
    to.conv(name + "mlp.c_proj", from + "ffn.out");
  }
  to.norm("transformer.ln_f", "decoder.norm");
  to.add("lm_head.weight", source.output_table());
  return to.tensors();
}

Json gpt2_config(const ExportSource& source, const TransformerShape& s) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", source.vocabulary.size()},
          {"n_positions", source.positions()},
          {"n_embd", s.d},
          {"n_layer", s.decoder_layers},
          {"n_head", s.heads},
          {"n_inner", s.ffn},
          {"activation_function", "relu"},
          {"layer_norm_epsilon", 1e-5},
          {"resid_pdrop", s.dropout},
          {"embd_pdrop", s.dropout},
          {"attn_pdrop", s.attention_dropout},
          {"tie_word_embeddings", false},
          {"bos_token_id", source.vocabulary.eos()},
          {"eos_token_id", source.vocabulary.eos()},
          {"torch_dtype", torch_type(source)}};
}

}  // namespace

void export_gpt2(const ExportSource& source, NewFolder& folder) {
  Misfits misfits;
  const TransformerShape shape = read_transformer(source, misfits);
  if (shape.d > 0) {
    misfits.require(shape.pre(), "the model's norm",
                    str(shape.norm, "; GPT-2's layers normalise before each sub-layer, and once at the end (pre)"));
    misfits.require(!source.has("softmax.bias"), "loss.bias", "true; GPT-2's output layer has no bias");
  } else {
    misfits.add("--to", "lmx writes recurrent models by --to pytorch");
  }
  misfits.check(source.directory, "GPT-2's layout");
  save_weights(source, folder, gpt2_tensors(source, shape));
  folder.write("config.json", gpt2_config(source, shape));
  folder.copy(source.directory + "/vocabulary.tsv", "vocabulary.tsv");
  folder.write("README.txt", std::string_view(export_note(source, kGpt2ReadMe)));
}

// Writes the model `gpt` in one of the layouts GPT-2, Llama, Qwen2 and Qwen3 of Hugging Face's transformers.

namespace {

using huggingface::GptFields;

constexpr const char* kFields =
    "layers d heads kv_heads head_size ffn context positions norm norm_eps activation bias qkv_bias qk_norm tie "
    "dropout rope_base rope_scaling.factor rope_scaling.low rope_scaling.high rope_scaling.original";

GptFields fields_of(const ModelTraits& traits) {
  GptFields fields;
  for (const std::string& field : config::split(kFields, ' ')) fields[field] = traits.text(field.c_str());
  return fields;
}

// The first layout that can represent the model. UserError: none can.
const huggingface::Layout& layout_for(const GptFields& fields, const std::string& directory) {
  Misfits misfits;
  for (const huggingface::Layout& layout : huggingface::layouts()) {
    const std::vector<std::string> reasons = huggingface::misfits(layout, fields);
    if (reasons.empty()) return layout;
    std::string text;
    for (const std::string& reason : reasons) text += (text.empty() ? "model." : ", model.") + reason;
    misfits.add(layout.name, text);
  }
  misfits.check(directory, "a layout of transformers");
  throw InternalError("there is no layout");
}

StateDict tensors_of(const ExportSource& source, const huggingface::Layout& layout) {
  StateDict tensors;
  for (const huggingface::Place& place : huggingface::places_of(layout, source.run.network.specs))
    for (auto& [name, tensor] : huggingface::split(place, source.at(place.parameter)))
      tensors.emplace(name, std::move(tensor));
  return tensors;
}

// A special id, or null if the vocabulary has none.
Json id_or_null(int32_t id) {
  return id < 0 ? Json() : Json(id);
}

constexpr const char *kGeneration = "generation_config.json",
                     *kSpecialIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// False: an id, or one of a list, is that of a row that this model does not have. Fine-tuning leaves out rows of a
// table without a token.
bool names_entries(const Json& ids, int32_t entries) {
  if (ids.is_array())
    return std::all_of(ids.begin(), ids.end(), [&](const Json& id) { return names_entries(id, entries); });
  return !ids.is_number() || ids < entries;
}

// Removes the special ids that are not below `entries`. Returns whether there were any.
bool drop_missing_ids(Json& settings, int32_t entries) {
  bool dropped = false;
  for (const char* key : kSpecialIds)
    if (settings.contains(key) && !names_entries(settings[key], entries)) dropped = settings.erase(key) > 0;
  return dropped;
}

std::string carried(const ExportSource& source, const char* name) {
  return str(source.directory, "/", kCarriedFolder, "/", name);
}

// The special ids of the model that was imported, otherwise those of the vocabulary, which has one for both ends.
void put_special_ids(const ExportSource& source, Json& config) {
  config["bos_token_id"] = config["eos_token_id"] = id_or_null(source.vocabulary.eos());
  const std::string path = carried(source, "config.json");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  Json imported = huggingface::parse_object(read_file(path), "[export] " + path);
  drop_missing_ids(imported, source.vocabulary.size());
  for (const char* key : kSpecialIds)
    if (imported.contains(key)) config[key] = imported[key];
}

// The settings of generate() of the model that was imported, without ids that this vocabulary does not have.
void write_generation(const ExportSource& source, NewFolder& folder) {
  const std::string path = carried(source, kGeneration);
  Json settings = huggingface::parse_object(read_file(path), "[export] " + path);
  if (!drop_missing_ids(settings, source.vocabulary.size())) return folder.copy(path, kGeneration);
  folder.write(kGeneration, settings);
}

Json model_config(const ExportSource& source, const huggingface::Layout& layout, const GptFields& fields) {
  Json config = huggingface::config_of(layout, fields);
  config["vocab_size"] = source.vocabulary.size();
  put_special_ids(source, config);
  config["torch_dtype"] = torch_type(source);
  return config;
}

Json tokenizer_config(const ExportSource& source, const SubwordTokenizer& tokenizer) {
  const bool pieces = tokenizer.file_name() == std::string_view(kSubwordFile);
  Json config{{"tokenizer_class", pieces ? "LlamaTokenizer" : "PreTrainedTokenizerFast"}};
  const int32_t end = source.vocabulary.eos(), unknown = source.vocabulary.unk();
  if (end >= 0) config["bos_token"] = config["eos_token"] = source.vocabulary.word(end);
  if (unknown >= 0) config["unk_token"] = source.vocabulary.word(unknown);
  if (pieces) config["add_bos_token"] = false;
  if (tokenizer.own()) config["add_prefix_space"] = false;
  return config;
}

// The tokenizer of a run of subwords, and the words of another one. Files that an import has carried along replace
// those that lmx would write.
void write_tokenizer(const ExportSource& source, NewFolder& folder) {
  std::error_code error;
  const auto is_carried = [&](const char* name) { return std::filesystem::exists(carried(source, name), error); };
  for (const char* name : kCarriedFiles)
    if (is_carried(name) && name != std::string_view(kGeneration)) folder.copy(carried(source, name), name);
  if (is_carried(kGeneration)) write_generation(source, folder);
  if (!std::filesystem::exists(source.directory + "/" + kCodecFile, error))
    return folder.copy(source.directory + "/vocabulary.tsv", "vocabulary.tsv");
  const auto tokenizer = load_text_tokenizer(source.directory);
  const bool pieces = tokenizer->file_name() == std::string_view(kSubwordFile);
  const char* name = pieces ? "tokenizer.model" : tokenizer->file_name();
  if (!is_carried(name)) folder.write(name, std::string_view(tokenizer->file()));
  if (!is_carried("tokenizer_config.json")) folder.write("tokenizer_config.json", tokenizer_config(source, *tokenizer));
}

constexpr const char* kGptReadMe = R"(A language model for Hugging Face's transformers.

    import torch, transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(".").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(".")  # needs tokenizer.json or tokenizer.model
    logits = model(**tokenizer("the old man", return_tensors="pt")).logits

transformers reads a tokenizer.model only with the packages sentencepiece and protobuf; without them it fails in tiktoken.
A model of words, characters or bytes has vocabulary.tsv instead of a tokenizer: the line i is the entry of id i (a
comment at the start, "# lmx vocabulary", is no line). `lmx import` reads this folder.
)";

}  // namespace

void export_gpt(const ExportSource& source, NewFolder& folder) {
  const GptFields fields = fields_of(ModelTraits(source));
  const huggingface::Layout& layout = layout_for(fields, source.directory);
  save_weights(source, folder, tensors_of(source, layout));
  folder.write("config.json", model_config(source, layout, fields));
  write_tokenizer(source, folder);
  folder.write("README.txt", std::string_view(export_note(source, kGptReadMe)));
}

}  // namespace lmx::app
