// `data:` of a recipe, prepared and opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "lmx/config.h"

namespace lmx {

// Reads `data:` of a composed recipe, prepares what is not cached yet (parallel, bounded memory, safe between
// processes) and maps it. UserError: corpus missing (names how to get it), empty, invalid UTF-8, vocabulary larger than
// the types.
Dataset open_dataset(const Node& data);
// The same text with every type in the vocabulary and no </s>, for statistics; `vocab_size` of `data` does not matter.
Dataset open_all_types(const Node& data);
// What `--dry-run` can tell of `data:` without preparing anything.
struct DataCheck {
  std::vector<std::string> findings;  // what open_dataset would complain about, one line each; a missing corpus is one
  std::optional<int64_t> train_tokens;  // known of made-up text, of text that was prepared before, and of little text
  std::optional<Dataset> dataset;       // little text of a language model, nothing of which is written to the cache
};
// UserError only for a `data:` that cannot be read as a config.
DataCheck check_dataset(const Node& data);

// Looks for the files of a recipe's `data:` and reads none. UserError: as open_dataset, where one is missing.
void require_files(const Node& data);

}  // namespace lmx
