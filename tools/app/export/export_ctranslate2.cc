// Writes a translation model in CTranslate2's format: model.bin (version 6 of its binary format, revision 7 of its
// "TransformerSpec"), config.json and the vocabulary. CTranslate2 fuses the same projections as lmx, so every matrix is
// written unchanged.
//
//   model.bin: u32 version, text name, u32 revision, u32 n, n variables, u32 m, m aliases (text name, text variable)
//   text: u16 length with the final 0, bytes, 0      variable: text name, u8 rank, u32 sizes, u8 type, u32 bytes, data
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include "app/export/export.h"
#include "app/text/subwords.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr uint32_t kVersion = 6, kRevision = 7;
enum class Type : uint8_t { f32 = 0, i8 = 1, i16 = 2 };

class ModelFile {
 public:
  void add(const std::string& name, const Tensor& tensor) { variables_[name] = tensor; }
  void add(const std::string& name, int8_t value) { variables_[name] = value; }
  void add(const std::string& name, int16_t value) { variables_[name] = value; }
  void alias(const std::string& name, const std::string& of) { aliases_[name] = of; }

  void save(const std::string& path) const {
    OutputFile file(path);
    put(file, kVersion);
    put(file, std::string("TransformerSpec"));
    put(file, kRevision);
    put(file, static_cast<uint32_t>(variables_.size()));
    for (const auto& [name, value] : variables_) {
      put(file, name);
      std::visit([&](const auto& v) { write(file, name, v); }, value);
    }
    put(file, static_cast<uint32_t>(aliases_.size()));
    for (const auto& [name, of] : aliases_) {
      put(file, name);
      put(file, of);
    }
    file.close();
  }

 private:
  template <class T>
  requires std::is_integral_v<T>
  static void put(OutputFile& file, T value) { file.write(&value, sizeof value); }
  static void put(OutputFile& file, const std::string& text) {
    put(file, static_cast<uint16_t>(text.size() + 1));
    file.write(text.c_str(), text.size() + 1);
  }
  static void write(OutputFile& file, const std::string& name, const Tensor& t) {
    if (t.bytes() > UINT32_MAX)
      throw UserError(
          str("[export] ", name, " ", t.shape(), " takes ", t.bytes(), " bytes; CTranslate2 counts to ", UINT32_MAX));
    put(file, static_cast<uint8_t>(t.rank()));
    for (const int64_t size : t.shape().dims()) put(file, static_cast<uint32_t>(size));
    put(file, static_cast<uint8_t>(Type::f32));
    put(file, static_cast<uint32_t>(t.bytes()));
    file.write(t.raw(), static_cast<size_t>(t.bytes()));
  }
  template <class T>
  requires std::is_integral_v<T>
  static void write(OutputFile& file, const std::string&, T value) {
    put(file, uint8_t{0});
    put(file, static_cast<uint8_t>(sizeof(T) == 1 ? Type::i8 : Type::i16));
    put(file, static_cast<uint32_t>(sizeof(T)));
    put(file, value);
  }

  std::map<std::string, std::variant<Tensor, int8_t, int16_t>> variables_;
  std::map<std::string, std::string> aliases_;
};

class Writer {
 public:
  Writer(const ExportSource& source, const TransformerShape& shape) : source_(source), shape_(shape) {}

  ModelFile make() {
    stack("encoder", shape_.encoder_layers);
    stack("decoder", shape_.decoder_layers);
    file_.add("encoder/embeddings_merge", int8_t{0});
    file_.add("encoder/multi_query_attention", int8_t{0});
    file_.add("decoder/alignment_layer", int16_t{-1});
    file_.add("decoder/alignment_heads", int16_t{1});
    file_.add("decoder/start_from_zero_embedding", int8_t{0});
    for (const char* flag : {"alibi", "alibi_use_positive_positions", "scale_alibi"})
      file_.add(str("decoder/", flag), int8_t{0});
    table("encoder/embeddings_0/weight", shape_.source_table());
    table("decoder/embeddings/weight", shape_.target_table());
    table("decoder/projection/weight", source_.output_table());
    if (source_.has("softmax.bias")) file_.add("decoder/projection/bias", source_.at("softmax.bias"));
    return std::move(file_);
  }

 private:
  // Stores a table at its first use; later uses refer to this variable.
  void table(const std::string& name, const std::string& parameter) {
    const auto [first, fresh] = tables_.emplace(parameter, name);
    fresh ? file_.add(name, source_.at(parameter)) : file_.alias(name, first->second);
  }
  void linear(const std::string& name, const std::string& parameter) {
    file_.add(name + "/weight", source_.at(parameter + ".weight"));
    file_.add(name + "/bias", source_.at(parameter + ".bias"));
  }
  void norm(const std::string& name, const std::string& parameter) {
    file_.add(name + "/gamma", source_.at(parameter + ".gain"));
    file_.add(name + "/beta", source_.at(parameter + ".bias"));
  }

  void stack(const std::string& side, int64_t layers) {
    file_.add(side + "/num_heads", static_cast<int16_t>(shape_.heads));
    file_.add(side + "/pre_norm", static_cast<int8_t>(shape_.pre()));
    file_.add(side + "/activation", int8_t{0});  // ReLU
    file_.add(side + "/scale_embeddings", int8_t{1});
    file_.add(side + "/position_encodings/encodings", position_table(source_.positions(), shape_.d));
    if (shape_.pre()) norm(side + "/layer_norm", side + ".norm");
    for (int64_t l = 0; l < layers; ++l) {
      const std::string to = str(side, "/layer_", l, "/"), from = str(side, ".", l, ".");
      linear(to + "self_attention/linear_0", from + "self.qkv");
      linear(to + "self_attention/linear_1", from + "self.out");
      norm(to + "self_attention/layer_norm", from + "self.norm");
      if (side == "decoder") {
        linear(to + "attention/linear_0", from + "cross.q");
        linear(to + "attention/linear_1", from + "cross.kv");
        linear(to + "attention/linear_2", from + "cross.out");
        norm(to + "attention/layer_norm", from + "cross.norm");
      }
      linear(to + "ffn/linear_0", from + "ffn.in");
      linear(to + "ffn/linear_1", from + "ffn.out");
      norm(to + "ffn/layer_norm", from + "ffn.norm");
    }
  }

  const ExportSource& source_;
  const TransformerShape& shape_;
  ModelFile file_;
  std::map<std::string, std::string> tables_;  // by parameter: the variable that contains it
};

constexpr const char* kReadMe = R"(A translation model for CTranslate2 (https://opennmt.net/CTranslate2).

    import ctranslate2, sentencepiece
    subwords = sentencepiece.SentencePieceProcessor("subwords.model")
    translator = ctranslate2.Translator(".")
    tokens = subwords.encode("a dog runs .", out_type=str)
    best = translator.translate_batch([tokens], beam_size=4, disable_unk=True)[0].hypotheses[0]
    print("".join(best).replace("\u2581", " ").strip())

The text must be prepared as the run's text was before it is cut into subwords: codecs.json says how (tokenized by the
rules of Moses if "moses" is true, in lower case if "lower_case" is true). `lmx translate` does both by itself.
)";

}  // namespace

void export_ctranslate2(const ExportSource& source, NewFolder& folder) {
  Misfits misfits;
  const TransformerShape shape = read_transformer(source, misfits);
  if (shape.d > 0)
    misfits.require(shape.encoder_layers > 0, "the model's encoder layers",
                    "0, a language model; lmx writes translation models for CTranslate2, and such a language model by "
                    "--to huggingface");
  misfits.check(source.directory, "CTranslate2's TransformerSpec");
  Writer(source, shape).make().save(folder.path("model.bin"));
  nlohmann::ordered_json config;
  config["add_source_bos"] = false;
  config["add_source_eos"] = true;
  config["bos_token"] = "</s>";
  config["decoder_start_token"] = "</s>";
  config["eos_token"] = "</s>";
  config["layer_norm_epsilon"] = 1e-5;
  config["multi_query_attention"] = false;
  config["unk_token"] = "<unk>";
  folder.write("config.json", config);
  auto words = nlohmann::ordered_json::array();
  for (int32_t i = 0; i < source.vocabulary.size(); ++i) words.push_back(source.vocabulary.word(i));
  folder.write("shared_vocabulary.json", words);
  for (const char* name : {kSubwordFile, kCodecFile}) folder.copy(source.directory + "/" + name, name);
  folder.write("README.txt", std::string_view(export_note(source, kReadMe)));
}

}  // namespace lmx::app
