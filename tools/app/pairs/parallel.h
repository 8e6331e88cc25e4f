// `data: {name: parallel}`: from the config to prepared and mapped pairs of sentences.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/pairs/pair_files.h"
#include "app/text/subwords.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"

namespace lmx::app {

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

// `data`: the section of the recipe, for the places of messages. UserError: neither corpus nor files, a missing side or
// one with a different number of files, a missing corpus or subword model, and others.
ParallelSources find_parallel(const ParallelConfig& config, const Node& data);

// Prepares the data if the cache does not contain it, and maps it.
Dataset open_parallel(const ParallelConfig& config, const ParallelSources& sources);

// Returns the number of subwords of the target side of the training split, if the cache contains an equal preparation.
std::optional<int64_t> known_train_tokens(const ParallelConfig& config, const ParallelSources& sources);

// Converts parallel text to subwords and pairs of shards, in two passes over the training text (count words to train
// subwords on, then write ids) and one pass over the other splits.
//
// Memory: one chunk of pairs per thread, and the distinct words of both languages. It does not grow with the text's
// length. The written files are the same for any number of threads.

struct PairCounts {
  int64_t read = 0, kept = 0;                      // pairs
  int64_t empty = 0, too_long = 0, bad_ratio = 0;  // dropped pairs, each counted for its first reason in this order
  std::array<int64_t, 2> words{}, subwords{}, unknown{};  // source, target; subwords without </s>; <unk> among them
};

struct ParallelReport {
  std::array<PairCounts, kSplits> splits;
  int64_t train_tokens = 0;         // of the target side of the training split, with </s>
  int64_t types = 0;                // distinct words of both sides of the training split
  std::vector<int64_t> part_pairs;  // of the main text and of each part of data.parts, in order; empty without parts
  std::string text(int64_t vocab_size, const ParallelSources& sources, const ParallelConfig& config) const;
};

// Writes into `directory`: <split>.source.bin and .target.bin, <split>.source.txt and .target.txt of valid and test
// (the original lines), subwords.model and vocab.tsv. UserError: errors of PairReader, for_each_pair and
// train_subwords, or a split without a pair that should have some. RunError: a disk error.
ParallelReport prepare_parallel(const ParallelConfig& config, const ParallelSources& sources,
                                const std::string& directory);

}  // namespace lmx::app
