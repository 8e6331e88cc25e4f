// `data: {name: parallel}`: from the config to prepared and mapped pairs of sentences.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/pairs/pair_reader.h"
#include "app/text/subwords.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"

namespace lmx::data {

// Training text in addition to the main text (data.parts).
struct PartSources {
  std::string place;  // for messages: "recipe.yaml:12:3: data.parts.crawl: "
  std::vector<PairFiles> files;
  bool ready = false;
  std::string joiner;
  PairRange range;
  PartConfig config;
};

struct ParallelSources {
  const Corpus* corpus = nullptr;  // null: files named by the recipe
  std::string directory;           // the folder of the corpus
  std::array<std::vector<PairFiles>, kSplits> files;
  LineSettings source, target;
  bool ready = false;  // the files are already tokenized
  std::string joiner;
  PairRange range;  // of the training files
  std::vector<PartSources> parts;
  std::vector<SourceFile*> all_files();  // each file once
};

// `place`: the position of `data:` in the recipe, for messages. UserError: neither corpus nor files, a missing side or
// one with a different number of files, a missing corpus or subword model, and others.
ParallelSources find_parallel(const ParallelConfig& config, const std::string& place);

// Prepares the data if the cache does not contain it, and maps it.
Dataset open_parallel(const ParallelConfig& config, const ParallelSources& sources);

// Returns the number of subwords of the target side of the training split, if the cache contains an equal preparation.
std::optional<int64_t> known_train_tokens(const ParallelConfig& config, const ParallelSources& sources);

}  // namespace lmx::data
