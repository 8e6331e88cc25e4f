// Makes runs of models that Hugging Face's transformers stores.
#pragma once

#include <cstdint>
#include <string>

namespace lmx::app {
class SubwordTokenizer;

struct ImportReport {
  std::string layout;     // "Llama"
  std::string tokenizer;  // "tokenizer.json"; "": the folder has none
  int64_t parameters = 0, vocabulary = 0;
};
// Reads config.json, the weights and the tokenizer of `directory`, and writes a run to `output`, a folder that does not
// exist, or is empty: the recipe, the checkpoint step-0 with f32 parameters, the vocabulary and the tokenizer.
// docs/huggingface.md lists what can be imported. UserError: a file is missing or damaged, a model that `gpt` cannot
// represent, tensors that do not belong to config.json, a folder in use. Then `output` is not created.
ImportReport import_huggingface(const std::string& directory, const std::string& output);

// The files of a Hugging Face folder that an import keeps unread in the folder kCarriedFolder of the run, and an export
// of this run, or of a run that starts from it, writes again. The folder also has config.json, from which an export
// takes the special ids.
inline constexpr const char* kCarriedFolder = "huggingface";
inline constexpr const char* kCarriedFiles[] = {"generation_config.json",
                                                "tokenizer_config.json",
                                                "special_tokens_map.json",
                                                "chat_template.jinja",
                                                "tokenizer.json",
                                                "added_tokens.json",
                                                "vocab.json",
                                                "merges.txt"};
// Copies these files from the run of `checkpoint`, if it has them, to the run in `directory`, which starts from this
// checkpoint. Copies nothing if the other run has another tokenizer than `tokenizer`.
void carry_files(const std::string& checkpoint, const SubwordTokenizer& tokenizer, const std::string& directory);

}  // namespace lmx::app
