// Byte-level BPE from a tokenizer.json of Hugging Face: GPT-2, Llama 3, Qwen and others.
#pragma once

#include <memory>

#include "app/text/subword_tokenizer.h"

namespace lmx::data {

// UserError, beginning with the file's path: no JSON, or a part that lmx does not read; the message names the part.
std::shared_ptr<const SubwordTokenizer> make_json_tokenizer(TokenizerFile file);

}  // namespace lmx::data
