#include "data/data_config.h"

#include "config/messages.h"
#include "lmx/error.h"
#include "nn/component.h"

namespace lmx::data {

Kind kind_of(const Node& data) {
  const std::vector<std::string> known{"text", "parallel", "synthetic"};
  const Node* name = data.find("name");
  if (!name || name->kind != Node::Kind::scalar) {
    throw UserError(config::at(name ? name->mark : data.mark, "data") +
                    "needs a key `name`: text, parallel or synthetic");
  }
  if (name->text == "text") return Kind::text;
  if (name->text == "parallel") return Kind::parallel;
  if (name->text == "synthetic") return Kind::synthetic;
  throw UserError(str(config::at(name->mark, "data.name"), "no kind of data is named '", name->text, "'",
                      did_you_mean(name->text, known), "; there are text, parallel and synthetic"));
}

// Sets defaults that depend on other keys. full_data_config writes them back as if the recipe had given them.
TextConfig text_config(const Node& data) {
  const Node* tokens = data.find("tokens");
  const bool bytes = tokens && tokens->text == "bytes";
  Node filled = data;
  if (bytes && !data.find("vocab_size")) filled.set("vocab_size", Node::scalar("256", tokens->mark));
  auto config = read_config<TextConfig>(filled, "data");
  const auto refuse = [&](const char* key, const std::string& why) {
    const Node* at = data.find(key);
    throw UserError(config::at(at ? at->mark : data.mark, str("data.", key)) + why);
  };
  if (config.tokens != "words" && !data.find("lower_case")) config.lower_case = false;
  if (config.preprocess == "puri" && !data.find("end_of_line")) config.end_of_line = false;
  if (config.tokens == "words" && config.preprocess != "none")
    refuse("preprocess", "words have separate rules; puri is for data.tokens chars or bytes");
  if (bytes && config.lower_case) refuse("lower_case", "bytes are not changed; use data.tokens chars, or false");
  if (bytes && config.vocab_size != 256)
    refuse("vocab_size", str("there are 256 bytes, not ", config.vocab_size, "; leave the key out"));
  return config;
}
SyntheticConfig synthetic_config(const Node& data) {
  return read_config<SyntheticConfig>(data, "data");
}

ParallelConfig parallel_config(const Node& data) {
  auto config = read_config<ParallelConfig>(data, "data");
  config.mix = read_mix(data);
  write_mix(config.mix, config.parts, config.ratio);
  return config;
}

int64_t vocabulary_size(const Node& data) {
  switch (kind_of(data)) {
    case Kind::synthetic:
      return synthetic_config(data).vocab_size;
    case Kind::parallel:
      return parallel_config(data).vocab_size;
    case Kind::text:
      break;
  }
  return text_config(data).vocab_size;
}

Node full_data_config(const Node& data) {
  const auto fields_of = [&] {
    switch (kind_of(data)) {
      case Kind::synthetic:
        return write_config(synthetic_config(data));
      case Kind::parallel:
        return write_config(parallel_config(data));
      case Kind::text:
        break;
    }
    return write_config(text_config(data));
  };
  Node full = Node::map(data.mark);
  full.set("name", *data.find("name"));
  for (const auto& [key, value] : fields_of().entries) full.set(key, value);
  return full;
}

}  // namespace lmx::data

namespace lmx {

component::Described component::data_kinds() {
  return {{"text", describe_config<data::TextConfig>()},
          {"parallel", describe_config<data::ParallelConfig>()},
          {"synthetic", describe_config<data::SyntheticConfig>()}};
}

}  // namespace lmx
