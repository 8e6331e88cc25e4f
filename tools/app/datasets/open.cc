#include "app/datasets/open.h"

#include "app/pairs/parallel.h"
#include "app/prepare/prepare.h"
#include "app/prepare/text.h"
#include "app/prepare/tokens.h"
#include "config/error_collector.h"
#include "config/messages.h"
#include "data/data_config.h"
#include "lmx/error.h"

namespace lmx::app {

namespace {

// Text that a dry run generates: its source takes time for each word and class.
bool is_little(const SyntheticConfig& c) {
  constexpr int64_t kMostTokens = 1 << 21, kMostChoices = 1 << 23, kMostWords = 1 << 17;
  return c.train_tokens + c.valid_tokens + c.test_tokens <= kMostTokens && c.vocab_size <= kMostWords &&
         c.classes <= kMostChoices / c.vocab_size;
}

}  // namespace

void require_files(const Node& data) {
  switch (kind_of(data)) {
    case Kind::synthetic:
      return;
    case Kind::parallel:
      return void(find_parallel(parallel_config(data), data));
    case Kind::text:
      return void(find_text(text_config(data), data));
    case Kind::tokens:
      return void(find_token_files(tokens_config(data), data));
  }
}

Dataset open_dataset(const Node& data) {
  const Kind kind = kind_of(data);
  if (kind == Kind::synthetic) return make_synthetic(synthetic_config(data));
  if (kind == Kind::parallel) {
    const ParallelConfig config = parallel_config(data);
    return open_parallel(config, find_parallel(config, data));
  }
  if (kind == Kind::tokens) return open_token_files(tokens_config(data), data);
  const TextConfig config = text_config(data);
  return open_text(config, find_text(config, data), false);
}

void check_all(const Node& data) {
  if (kind_of(data) == Kind::tokens) check_all_ids(tokens_config(data), data);
}

Dataset open_all_types(const Node& data) {
  const Kind kind = kind_of(data);
  const std::string place = config::at(data.mark, "data");
  if (kind == Kind::synthetic) return make_synthetic(synthetic_config(data));
  if (kind == Kind::parallel)
    throw UserError(str(place, "the types of parallel text are its subwords; name one side's files as text"));
  if (kind == Kind::tokens) throw UserError(str(place, "files of ids have no words to count; name text"));
  Node any_size = data;
  const Node* tokens = data.find("tokens");
  if (!tokens || tokens->text != "bytes") any_size.set("vocab_size", Node::scalar("3"));
  const TextConfig config = text_config(any_size);
  return open_text(config, find_text(config, data), true);
}

DataCheck check_dataset(const Node& data) {
  DataCheck check;
  ErrorCollector wrong;
  switch (kind_of(data)) {
    case Kind::tokens:
      wrong.keep([&] { check.dataset = open_token_files(tokens_config(data), data); });
      if (check.dataset) check.train_tokens = check.dataset->train.size();
      break;
    case Kind::parallel: {
      const ParallelConfig config = parallel_config(data);
      wrong.keep([&] { check.train_tokens = known_train_tokens(config, find_parallel(config, data)); });
      break;
    }
    case Kind::synthetic: {
      const SyntheticConfig config = synthetic_config(data);
      check.train_tokens = config.train_tokens;
      if (is_little(config)) check.dataset = make_synthetic(config);
      break;
    }
    case Kind::text: {
      const TextConfig config = text_config(data);
      wrong.keep([&] {
        const TextSources sources = find_text(config, data);
        check.dataset = open_little_text(config, sources);
        if (check.dataset) check.train_tokens = check.dataset->train.size();
        const auto counts = check.dataset ? std::nullopt : recorded_counts(config, sources);
        if (!counts) return;
        check.train_tokens = counts->train_tokens;
        check_vocabulary(config.vocab_size, counts->types, counts->unit);
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

}  // namespace lmx::app
