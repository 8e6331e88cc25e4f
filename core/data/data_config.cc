#include "data/data_config.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "config/messages.h"
#include "data/tokenizer_file.h"
#include "lmx/error.h"
#include "nn/component.h"

namespace lmx {
namespace {

bool given(const Node* node) {
  return node && node->kind != Node::Kind::null;
}

std::vector<std::string> names_of(const Mix& mix) {
  std::vector<std::string> names;
  for (const MixPart& part : mix.parts) names.push_back(part.name);
  return names;
}

size_t find_part(const Mix& mix, const std::string& name, const Mark& mark, const std::string& path) {
  const std::vector<std::string> names = names_of(mix);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UserError(str(config::at(mark, path), "there is no part '", name, "'", did_you_mean(name, names),
                        "; there are ", config::join(names)));
  return static_cast<size_t>(found - names.begin());
}

void check_part(const MixPart& part) {
  const PartConfig& c = part.config;
  const config::Place place{part.node, part.path};
  const bool two = !c.source_files.empty() || !c.target_files.empty();
  if (!c.corpus.empty() + two + !c.files.empty() != 1)
    throw UserError(place() + "a part needs one of: `corpus`, `source_files` and `target_files`, TSV `files`");
  if (c.source_files.empty() != c.target_files.empty())
    throw UserError(c.source_files.empty() ? place("target_files") + "source_files is missing beside target_files"
                                           : place("source_files") + "target_files is missing beside source_files");
  if (c.tsv_columns.size() != 2)
    throw UserError(str(place("tsv_columns"), "tsv_columns names ", c.tsv_columns.size(), " columns; two are needed"));
  if (c.max_ratio > 0 && c.max_ratio < 1)
    throw UserError(str(place("max_ratio"), "max_ratio ", c.max_ratio,
                        " would drop every pair; it is longer / shorter, at least 1"));
}

void read_ratio(const Node& ratio, Mix& mix) {
  if (ratio.kind != Node::Kind::map)
    throw UserError(config::at(ratio.mark, "data.ratio") +
                    "expected part: number, such as {main: 1, crawl: 4}, for one pair of main four of crawl");
  for (const auto& [name, node] : ratio.entries) {
    const std::string path = config::join_path("data.ratio", name);
    MixPart& part = mix.parts[find_part(mix, name, node.mark, path)];
    const auto value = node.kind == Node::Kind::scalar && !node.quoted ? parse_double(node.text) : std::nullopt;
    if (!value || !std::isfinite(*value) || *value <= 0)
      throw UserError(str(config::at(node.mark, path), "expected a number above 0, got ", config::describe_value(node),
                          "; leave a part out by taking it from data.parts"));
    part.ratio = *value;
  }
}

}  // namespace

int64_t Mix::draws(size_t part, int64_t defining_pairs) const {
  const double wanted = static_cast<double>(defining_pairs) * parts[part].ratio / parts[epoch_of].ratio;
  return std::max<int64_t>(1, std::llround(wanted));
}

Mix read_mix(const Node& data) {
  Mix mix;
  const Node *parts = data.find("parts"), *ratio = data.find("ratio"), *epoch_of = data.find("epoch_of");
  mix.parts.push_back({kMainPart, "data", data, 1, {}});
  if (given(parts)) {
    if (parts->kind != Node::Kind::map)
      throw UserError(config::at(parts->mark, "data.parts") +
                      "expected texts by name, such as {crawl: {source_files: [a.en], target_files: [a.de]}}");
    for (const auto& [name, node] : parts->entries) {
      const std::string path = config::join_path("data.parts", name);
      if (name == kMainPart)
        throw UserError(config::at(node.mark, path) + "main is the text that data itself names; choose another name");
      mix.parts.push_back({name, path, node, 1, read_config<PartConfig>(node, path)});
      check_part(mix.parts.back());
    }
  }
  if (given(ratio)) read_ratio(*ratio, mix);
  if (given(epoch_of)) mix.epoch_of = find_part(mix, epoch_of->text, epoch_of->mark, "data.epoch_of");
  if (mix.parts.size() == 1) mix.parts.clear();
  return mix;
}

void write_mix(const Mix& mix, Node& parts, Node& ratio) {
  if (mix.parts.empty()) return;
  parts = Node::map();
  ratio = Node::map();
  for (const MixPart& part : mix.parts) {
    if (part.name != kMainPart) parts.set(part.name, write_config(part.config));
    ratio.set(part.name, Node::scalar(config::double_text(part.ratio)));
  }
}

Kind kind_of(const Node& data) {
  const std::vector<std::string> known{"text", "parallel", "tokens", "synthetic"};
  const Node* name = data.find("name");
  if (!name || name->kind != Node::Kind::scalar) {
    throw UserError(config::Place{data, "data"}("name") + "needs a key `name`: text, parallel, tokens or synthetic");
  }
  if (name->text == "text") return Kind::text;
  if (name->text == "parallel") return Kind::parallel;
  if (name->text == "tokens") return Kind::tokens;
  if (name->text == "synthetic") return Kind::synthetic;
  throw UserError(str(config::at(name->mark, "data.name"), "no kind of data is named '", name->text, "'",
                      did_you_mean(name->text, known), "; there are text, parallel, tokens and synthetic"));
}

namespace {

// `data` with the size of its tokenizer's vocabulary, if it names none.
Node with_tokenizer_entries(const Node& data) {
  const Node* file = data.find("tokenizer_file");
  Node filled = data;
  if (file && !file->text.empty() && !data.find("vocab_size"))
    filled.set("vocab_size", Node::scalar(std::to_string(tokenizer_entries(file->text)), file->mark));
  return filled;
}

using Refuse = std::function<void(const char* key, const std::string& why)>;

// Values of keys that belong to another unit of the text.
void check_unit(const TextConfig& config, const Node& data, const Refuse& refuse) {
  const bool bytes = config.tokens == "bytes", subwords = config.tokens == "subwords";
  if ((config.tokens == "words" || subwords) && config.preprocess != "none")
    refuse("preprocess", str(config.tokens, " have separate rules; puri is for data.tokens chars or bytes"));
  if (bytes && config.lower_case) refuse("lower_case", "bytes are not changed; use data.tokens chars, or false");
  if (bytes && config.vocab_size != 256)
    refuse("vocab_size", str("there are 256 bytes, not ", config.vocab_size, "; leave the key out"));
  if (subwords && config.lower_case) refuse("lower_case", "subwords keep the text unchanged; use false");
  if (subwords && config.end_of_line)
    refuse("end_of_line", "documents of subwords have data.document_token; leave the key out");
  const TextConfig usual;
  if (config.special_text != usual.special_text && config.tokenizer_file.empty())
    refuse("special_text",
           "is for a data.tokenizer_file that is a tokenizer.json; a trained tokenizer has no such text");
  const std::pair<const char*, bool> own[] = {{"tokenizer_file", config.tokenizer_file != usual.tokenizer_file},
                                              {"document", config.document != usual.document},
                                              {"document_token", config.document_token != usual.document_token},
                                              {"special_text", config.special_text != usual.special_text}};
  for (const auto& [key, given] : own)
    if (given && !subwords && data.find(key)) refuse(key, "is for data.tokens subwords");
}

}  // namespace

// Sets defaults that depend on other keys. full_data_config writes them back as if the recipe had given them.
TextConfig text_config(const Node& data) {
  const Node* tokens = data.find("tokens");
  const bool bytes = tokens && tokens->text == "bytes";
  Node filled = with_tokenizer_entries(data);
  if (bytes && !data.find("vocab_size")) filled.set("vocab_size", Node::scalar("256", tokens->mark));
  auto config = read_config<TextConfig>(filled, "data");
  if (config.tokens != "words" && !data.find("lower_case")) config.lower_case = false;
  if ((config.preprocess == "puri" || config.tokens == "subwords") && !data.find("end_of_line"))
    config.end_of_line = false;
  check_unit(config, data,
             [&](const char* key, const std::string& why) { throw UserError(place_of_key(data, "data", key) + why); });
  return config;
}
SyntheticConfig synthetic_config(const Node& data) {
  const auto config = read_config<SyntheticConfig>(data, "data");
  const int64_t words = config.vocab_size - 2;
  for (const auto& [key, value] : {std::pair{"branching", config.branching}, {"classes", config.classes}})
    if (value > words)
      throw UserError(str(config::Place{data, "data"}(key), key, " ", value,
                          " must not exceed the source's words (data.vocab_size - 2 = ", words, ")"));
  return config;
}

TokensConfig tokens_config(const Node& data) {
  return read_config<TokensConfig>(with_tokenizer_entries(data), "data");
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
    case Kind::tokens:
      return tokens_config(data).vocab_size;
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
      case Kind::tokens:
        return write_config(tokens_config(data));
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

component::Described component::data_kinds() {
  return {{"text", describe_config<TextConfig>()},
          {"parallel", describe_config<ParallelConfig>()},
          {"tokens", describe_config<TokensConfig>()},
          {"synthetic", describe_config<SyntheticConfig>()}};
}

}  // namespace lmx
