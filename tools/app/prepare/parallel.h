// `data: {name: parallel}`: from its config to prepared, mapped pairs of sentences.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/prepare/pair_reader.h"
#include "app/text/text_codec.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"

namespace lmx::data {

// Training text beside the main one (data.parts).
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
  std::string directory;           // where the corpus lies
  std::array<std::vector<PairFiles>, kSplits> files;
  LineSettings source, target;
  bool ready = false;  // the files hold words already
  std::string joiner;
  PairRange range;  // of the training files
  std::vector<PartSources> parts;
  std::vector<SourceFile*> all_files();  // each once
};

// `place`: where `data:` stands in the recipe, for messages. UserError: no corpus and no files, a side that is missing
// or has another number of files, a missing corpus or subword model ...
ParallelSources find_parallel(const ParallelConfig& config, const std::string& place);

// Prepares what the cache does not hold and maps it.
Dataset open_parallel(const ParallelConfig& config, const ParallelSources& sources);

// Subwords of the target side of the training split, from what the cache recorded of an equal preparation.
std::optional<int64_t> known_train_tokens(const ParallelConfig& config, const ParallelSources& sources);

}  // namespace lmx::data
