// Which vocabulary parameters were trained with: a table has a row for each word, and nothing in the rows says for
// which.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lmx/data.h"

namespace lmx::train {

struct VocabularyMark {
  int64_t entries = 0;
  std::string sha256;  // of the words in the order of their ids; "": nobody has recorded it
};

VocabularyMark mark_of(const Vocabulary& vocabulary);
// As a checkpoint's numbers, and the metadata of a file of parameters.
void put_mark(std::map<std::string, std::string>& values, const VocabularyMark& mark);
VocabularyMark get_mark(const std::map<std::string, std::string>& values);

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
