#include "app/datasets/open.h"

#include "app/pairs/parallel.h"
#include "app/prepare/prepare.h"
#include "app/prepare/text.h"
#include "app/prepare/tokens.h"
#include "config/error_collector.h"
#include "config/messages.h"
#include "data/data_config.h"
#include "lmx/error.h"

namespace lmx {

using data::Kind, data::kind_of, data::text_config, data::parallel_config, data::synthetic_config, data::tokens_config;

namespace {

// Text that a dry run generates: its source takes time for each word and class.
bool is_little(const data::SyntheticConfig& c) {
  constexpr int64_t kMostTokens = 1 << 21, kMostChoices = 1 << 23, kMostWords = 1 << 17;
  return c.train_tokens + c.valid_tokens + c.test_tokens <= kMostTokens && c.vocab_size <= kMostWords &&
         c.classes <= kMostChoices / c.vocab_size;
}

data::ParallelSources sources_of(const data::ParallelConfig& config, const Node& data) {
  return data::find_parallel(config, config::at(data.mark, "data"));
}
data::TextSources sources_of(const data::TextConfig& config, const Node& data) {
  return data::find_text(config, config::at(data.mark, "data"));
}

}  // namespace

void require_files(const Node& data) {
  switch (kind_of(data)) {
    case Kind::synthetic:
      return;
    case Kind::parallel:
      return void(sources_of(parallel_config(data), data));
    case Kind::text:
      return void(sources_of(text_config(data), data));
    case Kind::tokens:
      return void(data::find_token_files(tokens_config(data), config::at(data.mark, "data")));
  }
}

Dataset open_dataset(const Node& data) {
  const Kind kind = kind_of(data);
  if (kind == Kind::synthetic) return data::make_synthetic(synthetic_config(data));
  if (kind == Kind::parallel) {
    const data::ParallelConfig config = parallel_config(data);
    return data::open_parallel(config, sources_of(config, data));
  }
  if (kind == Kind::tokens) return data::open_token_files(tokens_config(data), config::at(data.mark, "data"));
  const data::TextConfig config = text_config(data);
  return data::open_text(config, sources_of(config, data), false);
}

void check_all(const Node& data) {
  if (kind_of(data) == Kind::tokens) data::check_all_ids(tokens_config(data), config::at(data.mark, "data"));
}

Dataset open_all_types(const Node& data) {
  const Kind kind = kind_of(data);
  if (kind == Kind::synthetic) return data::make_synthetic(synthetic_config(data));
  if (kind == Kind::parallel)
    throw UserError(str(config::at(data.mark, "data"),
                        "the types of parallel text are its subwords; name one side's files as text"));
  if (kind == Kind::tokens)
    throw UserError(str(config::at(data.mark, "data"), "files of ids have no words to count; name text"));
  Node any_size = data;
  const Node* tokens = data.find("tokens");
  if (!tokens || tokens->text != "bytes") any_size.set("vocab_size", Node::scalar("3"));
  const data::TextConfig config = text_config(any_size);
  return data::open_text(config, sources_of(config, data), true);
}

DataCheck check_dataset(const Node& data) {
  DataCheck check;
  ErrorCollector wrong;
  switch (kind_of(data)) {
    case Kind::tokens:
      wrong.keep([&] { check.dataset = data::open_token_files(tokens_config(data), config::at(data.mark, "data")); });
      if (check.dataset) check.train_tokens = check.dataset->train.size();
      break;
    case Kind::parallel: {
      const data::ParallelConfig config = parallel_config(data);
      wrong.keep([&] { check.train_tokens = data::known_train_tokens(config, sources_of(config, data)); });
      break;
    }
    case Kind::synthetic: {
      const data::SyntheticConfig config = synthetic_config(data);
      const bool right = wrong.keep([&] { data::check_synthetic(config); });
      check.train_tokens = config.train_tokens;
      if (right && is_little(config)) check.dataset = data::make_synthetic(config);
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

const DataCheck& DatasetChecks::of(const Node& data) {
  constexpr size_t kMost = 16;  // a check may hold a text of some megabytes
  const std::string key = to_yaml(data);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (known_.size() == kMost) known_.clear();
  return known_[key] = check_dataset(data);
}

}  // namespace lmx
