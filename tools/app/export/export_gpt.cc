// Writes the model `gpt` in one of the layouts GPT-2, Llama, Qwen2 and Qwen3 of Hugging Face's transformers.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/export/writers.h"
#include "app/huggingface/import.h"
#include "app/huggingface/layouts.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "lmx/error.h"

namespace lmx::train {
namespace {

using Json = nlohmann::ordered_json;
using huggingface::GptFields;

constexpr const char* kFields[] = {"layers",
                                   "d",
                                   "heads",
                                   "kv_heads",
                                   "head_size",
                                   "ffn",
                                   "context",
                                   "norm",
                                   "norm_eps",
                                   "rope_base",
                                   "activation",
                                   "rope_scaling.factor",
                                   "positions",
                                   "bias",
                                   "qkv_bias",
                                   "qk_norm",
                                   "tie",
                                   "rope_scaling.low",
                                   "dropout",
                                   "rope_scaling.high",
                                   "rope_scaling.original"};

GptFields fields_of(const ModelTraits& traits) {
  GptFields fields;
  for (const char* field : kFields) fields[field] = traits.text(field);
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

Json model_config(const ExportSource& source, const huggingface::Layout& layout, const GptFields& fields) {
  Json config = huggingface::config_of(layout, fields);
  config["vocab_size"] = source.vocabulary.size();
  config["bos_token_id"] = config["eos_token_id"] = id_or_null(source.vocabulary.eos());
  config["torch_dtype"] = torch_type(source);
  return config;
}

Json tokenizer_config(const ExportSource& source, const data::SubwordTokenizer& tokenizer) {
  const bool pieces = tokenizer.file_name() == std::string_view(data::kSubwordFile);
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
  const auto carried = [&](const char* name) { return str(source.directory, "/", kCarriedFolder, "/", name); };
  for (const char* name : kCarriedFiles)
    if (std::filesystem::exists(carried(name), error)) folder.copy(carried(name), name);
  if (!std::filesystem::exists(source.directory + "/" + data::kCodecFile, error))
    return folder.copy(source.directory + "/vocabulary.tsv", "vocabulary.tsv");
  const auto tokenizer = load_text_tokenizer(source.directory);
  const bool pieces = tokenizer->file_name() == std::string_view(data::kSubwordFile);
  folder.write(pieces ? "tokenizer.model" : tokenizer->file_name(), std::string_view(tokenizer->file()));
  if (!std::filesystem::exists(carried("tokenizer_config.json"), error))
    folder.write("tokenizer_config.json", tokenizer_config(source, *tokenizer));
}

constexpr const char* kGptReadMe = R"(A language model for Hugging Face's transformers.

    import torch, transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(".").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(".")  # needs tokenizer.json or tokenizer.model
    logits = model(**tokenizer("the old man", return_tensors="pt")).logits

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

}  // namespace lmx::train
