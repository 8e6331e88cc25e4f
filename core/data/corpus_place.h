// Where a corpus lies that a recipe asks for.
#pragma once

#include <string>

#include "lmx/config.h"
#include "lmx/corpora.h"
#include "lmx/error.h"

namespace lmx::data {

// A corpus that lmx knows, and that this machine does not have.
class CorpusMissing : public UserError {
 public:
  using UserError::UserError;
};

// CorpusMissing: nowhere; with where it was looked for, and how to get it.
inline std::string directory_of(const Corpus& corpus) {
  CorpusPlace place = locate(corpus);
  if (!place.problem.empty()) throw CorpusMissing("[data] " + place.problem);
  return std::move(place.directory);
}

// Looks for the files of a recipe's `data:` and reads none. UserError: as open_dataset, where one is missing.
void require_files(const Node& data);

}  // namespace lmx::data
