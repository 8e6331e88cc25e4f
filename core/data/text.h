// `data: {name: text}`: from its config to prepared, mapped tokens.
#pragma once

#include <string>
#include <vector>

#include "data/data_config.h"
#include "data/sources.h"
#include "lmx/corpora.h"
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
LMX_API TextSources find_text(const TextConfig& config, const std::string& place);

// Prepares what the cache does not hold and maps it. With `all_types` the vocabulary is not cut and there is no </s>.
LMX_API Dataset open_text(const TextConfig& config, const TextSources& sources, bool all_types);

}  // namespace lmx::data
