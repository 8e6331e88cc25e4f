// Finds a corpus that a recipe uses.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/corpora/corpora.h"
#include "config/error_collector.h"
#include "lmx/config.h"

namespace lmx::data {

// A corpus of the registry is missing on this machine. `messages` contains also all other errors that were found with
// it.
class CorpusMissing : public CollectedErrors {
 public:
  explicit CorpusMissing(std::vector<std::string> messages) : CollectedErrors(std::move(messages), "mistakes") {}
};

// CorpusMissing: it was not found; the message contains the searched folders, and how to get it.
inline std::string directory_of(const Corpus& corpus) {
  CorpusPlace place = locate(corpus);
  if (!place.problem.empty()) throw CorpusMissing({"[data] " + place.problem});
  return std::move(place.directory);
}

}  // namespace lmx::data
