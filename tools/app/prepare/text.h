// `data: {name: text}`: from the config to prepared and mapped tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "app/prepare/prepare.h"
#include "app/text/tokenizer.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"

namespace lmx::app {

// Sets what a document is in plain text, for subwords: data.document.
void set_documents(std::vector<SourceFile>& files, const TextConfig& config);

// data.document_token
DocumentToken document_token_of(const TextConfig& config);

struct TextSources {
  const Corpus* corpus = nullptr;  // null: files named by the recipe
  std::string directory;           // the folder of the corpus
  std::vector<SourceFile> files;
  bool whitespace_only = false;
};

// `data`: the section of the recipe, for the places of messages. UserError: neither corpus nor files, both, a missing
// corpus, and others.
TextSources find_text(const TextConfig& config, const Node& data);

// Prepares the data if the cache does not contain it, and maps it. With `all_types` the vocabulary is complete and
// there is no </s>.
Dataset open_text(const TextConfig& config, const TextSources& sources, bool all_types);

// Opens small text, which takes a fraction of a second. If the cache does not contain it, it is prepared in a temporary
// folder and the cache stays unchanged. nullopt: the text is too large.
std::optional<Dataset> open_little_text(const TextConfig& config, const TextSources& sources);

struct TextCounts {
  int64_t types = 0;  // distinct words of the training split
  int64_t train_tokens = 0;
  Unit unit = Unit::word;
};
// Returns the counts that the cache recorded when the same text was prepared, with any vocabulary. nullopt: it never
// was.
std::optional<TextCounts> recorded_counts(const TextConfig& config, const TextSources& sources);

}  // namespace lmx::app
