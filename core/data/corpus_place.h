// Where a corpus lies that a recipe asks for.
#pragma once

#include <string>

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

}  // namespace lmx::data
