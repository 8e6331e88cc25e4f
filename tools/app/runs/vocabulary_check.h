// Whether parameters were trained with the vocabulary that they are used with.
#pragma once

#include <optional>
#include <string>

#include "runfiles/vocabulary_mark.h"

namespace lmx::train {

// The vocabulary of the run whose folder contains `checkpoint`, if it is the one of `mark`.
std::optional<Vocabulary> vocabulary_beside(const std::string& checkpoint, const VocabularyMark& mark);

// Parameters at `checkpoint`, beside the vocabulary of the run in `directory`. UserError where they were trained with
// another; names the first entry that differs where that one's run is there, too.
void check_vocabulary(const VocabularyMark& mark, const std::string& checkpoint, const Vocabulary& vocabulary,
                      const std::string& directory);
// The same of two checkpoints that become one.
void check_one_vocabulary(const VocabularyMark& a, const std::string& checkpoint_a, const VocabularyMark& b,
                          const std::string& checkpoint_b);

}  // namespace lmx::train
