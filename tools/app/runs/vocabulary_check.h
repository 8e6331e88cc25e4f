// Checks whether parameters were trained with the vocabulary that they are used with.
#pragma once

#include <optional>
#include <string>

#include "runfiles/vocabulary_mark.h"

namespace lmx::train {

// Returns the vocabulary of the run whose folder contains `checkpoint`, if its mark is `mark`.
std::optional<Vocabulary> vocabulary_beside(const std::string& checkpoint, const VocabularyMark& mark);

// Checks parameters at `checkpoint` against the vocabulary of the run in `directory`. UserError: they were trained with
// another vocabulary; the message names the first entry that differs if the run of the checkpoint is available.
void check_vocabulary(const VocabularyMark& mark, const std::string& checkpoint, const Vocabulary& vocabulary,
                      const std::string& directory);
// The same for two checkpoints that are merged.
void check_one_vocabulary(const VocabularyMark& a, const std::string& checkpoint_a, const VocabularyMark& b,
                          const std::string& checkpoint_b);

}  // namespace lmx::train
