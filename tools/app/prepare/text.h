// `data: {name: text}`: from its config to prepared, mapped tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "app/text/tokenizer.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"

namespace lmx::data {

struct TextSources {
  const Corpus* corpus = nullptr;  // null: files named by the recipe
  std::string directory;           // where the corpus lies
  std::vector<SourceFile> files;
  bool whitespace_only = false;
};

// `place`: where `data:` stands in the recipe, for messages. UserError: no corpus and no files, both, a missing corpus
// ...
TextSources find_text(const TextConfig& config, const std::string& place);

// Prepares what the cache does not hold and maps it. With `all_types` the vocabulary is not cut and there is no </s>.
Dataset open_text(const TextConfig& config, const TextSources& sources, bool all_types);

// The same of little text, without a trace in the cache where it is not prepared there: a fraction of a second.
// nullopt: much text.
std::optional<Dataset> open_little_text(const TextConfig& config, const TextSources& sources);

struct TextCounts {
  int64_t types = 0;  // distinct words of the training split
  int64_t train_tokens = 0;
  Unit unit = Unit::word;
};
// What the cache recorded when the same text was prepared, with whatever vocabulary. nullopt: it never was.
std::optional<TextCounts> recorded_counts(const TextConfig& config, const TextSources& sources);

}  // namespace lmx::data
