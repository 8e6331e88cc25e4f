// Prepares and opens `data:` of a recipe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "lmx/config.h"

namespace lmx::app {

// Reads `data:` of a composed recipe, prepares the data if the cache does not contain it (in parallel, with bounded
// memory, safe between processes), and maps it. UserError: a missing corpus (the message explains how to get it), an
// empty one, invalid UTF-8, a vocabulary larger than the number of types.
Dataset open_dataset(const Node& data);
// Checks everything that open_dataset() checks only in part: the ids of `data: {name: tokens}`. UserError: an id that
// is not below the vocabulary.
void check_all(const Node& data);
// Opens the same text with every type in the vocabulary and without </s>, for statistics. Ignores `vocab_size` of
// `data`.
Dataset open_all_types(const Node& data);
// Results of the checks that `--dry-run` makes on `data:` without preparing anything.
struct DataCheck {
  std::vector<std::string> findings;    // one line per error that open_dataset would throw, such as a missing corpus
  std::optional<int64_t> train_tokens;  // known for synthetic text, for text in the cache, and for small text
  std::optional<Dataset> dataset;       // for a language model on small text; nothing is written to the cache
};
// UserError: only if `data:` cannot be read as a config.
DataCheck check_dataset(const Node& data);

// The results of check_dataset() for many recipes that share their data, such as the points of a sweep. Its owner
// assumes that no file changes meanwhile.
class DatasetChecks {
 public:
  const DataCheck& of(const Node& data);

 private:
  std::map<std::string, DataCheck> known_;  // by the text of `data:`
};

// Searches the files of a recipe's `data:` without reading them. UserError: as open_dataset, if a file is missing.
void require_files(const Node& data);

}  // namespace lmx::app
