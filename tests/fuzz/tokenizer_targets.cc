// tokenizer.json of a tokenizer's author.
#include <stdexcept>

#include "app/text/subword_tokenizer.h"
#include "lmx/error.h"
#include "targets.h"

namespace lmx::fuzz {

void tokenizer_json(std::string_view input) {
  const std::string text =
      "It's  12345 na\xC3\xAFve e\xCC\x81\xE2\x80\xA8\n\n\tif (x) { <|endoftext|> }\xF0\x9F\x98\x80 ";
  try {
    for (const char* special : {"text", "token"}) {
      const auto tokenizer = data::make_json_tokenizer({std::string(input), "input", false, special});
      for (const int32_t id : tokenizer->encode(text))
        if (id < 0 || id >= tokenizer->size()) throw std::logic_error("an id that no token has");
      static_cast<void>(tokenizer->decode(tokenizer->encode(text)));
    }
  } catch (const UserError&) {
  }
}

}  // namespace lmx::fuzz
