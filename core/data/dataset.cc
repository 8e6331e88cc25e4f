// The entry points of lmx/data.h: `name` of `data:` chooses between text, parallel and synthetic.
#include "config/messages.h"
#include "data/corpus_place.h"
#include "data/parallel.h"
#include "data/prepare.h"
#include "data/synthetic.h"
#include "data/text.h"
#include "lmx/error.h"
#include "lmx/mistakes.h"
#include "nn/component.h"

namespace lmx {
namespace {

constexpr int64_t kLittleSynthetic = 1 << 21;  // tokens that a dry run makes: a fraction of a second

enum class Kind { text, synthetic, parallel };

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

// Defaults that depend on other keys. Written back by full_data_config, they are keys that were given.
data::TextConfig text_config(const Node& data) {
  const Node* tokens = data.find("tokens");
  const bool bytes = tokens && tokens->text == "bytes";
  Node filled = data;
  if (bytes && !data.find("vocab_size")) filled.set("vocab_size", Node::scalar("256", tokens->mark));
  auto config = read_config<data::TextConfig>(filled, "data");
  const auto refuse = [&](const char* key, const std::string& why) {
    const Node* at = data.find(key);
    throw UserError(config::at(at ? at->mark : data.mark, str("data.", key)) + why);
  };
  if (config.tokens != "words" && !data.find("lower_case")) config.lower_case = false;
  if (config.preprocess == "puri" && !data.find("end_of_line")) config.end_of_line = false;
  if (config.tokens == "words" && config.preprocess != "none")
    refuse("preprocess", "words have rules of their own; puri is for data.tokens chars or bytes");
  if (bytes && config.lower_case) refuse("lower_case", "bytes are taken as they are; use data.tokens chars, or false");
  if (bytes && config.vocab_size != 256)
    refuse("vocab_size", str("there are 256 bytes, not ", config.vocab_size, "; leave the key out"));
  return config;
}
data::SyntheticConfig synthetic_config(const Node& data) {
  return read_config<data::SyntheticConfig>(data, "data");
}

data::ParallelConfig parallel_config(const Node& data) {
  auto config = read_config<data::ParallelConfig>(data, "data");
  config.mix = data::read_mix(data);
  data::write_mix(config.mix, config.parts, config.ratio);
  return config;
}

data::ParallelSources sources_of(const data::ParallelConfig& config, const Node& data) {
  return data::find_parallel(config, config::at(data.mark, "data"));
}
data::TextSources sources_of(const data::TextConfig& config, const Node& data) {
  return data::find_text(config, config::at(data.mark, "data"));
}

}  // namespace

void data::require_files(const Node& data) {
  switch (kind_of(data)) {
    case Kind::synthetic:
      return;
    case Kind::parallel:
      return void(sources_of(parallel_config(data), data));
    case Kind::text:
      return void(sources_of(text_config(data), data));
  }
}

Dataset open_dataset(const Node& data) {
  const Kind kind = kind_of(data);
  if (kind == Kind::synthetic) return data::make_synthetic(synthetic_config(data));
  if (kind == Kind::parallel) {
    const data::ParallelConfig config = parallel_config(data);
    return data::open_parallel(config, sources_of(config, data));
  }
  const data::TextConfig config = text_config(data);
  return data::open_text(config, sources_of(config, data), false);
}

Dataset open_all_types(const Node& data) {
  const Kind kind = kind_of(data);
  if (kind == Kind::synthetic) return data::make_synthetic(synthetic_config(data));
  if (kind == Kind::parallel)
    throw UserError(str(config::at(data.mark, "data"),
                        "the types of parallel text are its subwords; name one side's files as text"));
  Node any_size = data;
  const Node* tokens = data.find("tokens");
  if (!tokens || tokens->text != "bytes") any_size.set("vocab_size", Node::scalar("3"));
  const data::TextConfig config = text_config(any_size);
  return data::open_text(config, sources_of(config, data), true);
}

DataCheck check_dataset(const Node& data) {
  DataCheck check;
  Mistakes wrong;
  switch (kind_of(data)) {
    case Kind::parallel: {
      const data::ParallelConfig config = parallel_config(data);
      wrong.keep([&] { check.train_tokens = data::known_train_tokens(config, sources_of(config, data)); });
      break;
    }
    case Kind::synthetic: {
      const data::SyntheticConfig config = synthetic_config(data);
      const bool right = wrong.keep([&] { data::check_synthetic(config); });
      check.train_tokens = config.train_tokens;
      if (right && config.train_tokens + config.valid_tokens + config.test_tokens <= kLittleSynthetic)
        check.dataset = data::make_synthetic(config);
      break;
    }
    case Kind::text: {
      const data::TextConfig config = text_config(data);
      wrong.keep([&] {
        const data::TextSources sources = sources_of(config, data);
        check.dataset = data::open_little_text(config, sources);
        if (check.dataset) check.train_tokens = check.dataset->train.size();
        const auto counts = check.dataset ? std::nullopt : data::recorded_counts(config, sources);
        if (!counts) return;
        check.train_tokens = counts->train_tokens;
        data::check_vocabulary(config.vocab_size, counts->types, counts->unit);
      });
      break;
    }
  }
  check.findings = wrong.messages();
  return check;
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

component::Described component::data_kinds() {
  return {{"text", describe_config<data::TextConfig>()},
          {"parallel", describe_config<data::ParallelConfig>()},
          {"synthetic", describe_config<data::SyntheticConfig>()}};
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

}  // namespace lmx
