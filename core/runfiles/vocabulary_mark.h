// Identifies the vocabulary with which parameters were trained: a table has a row for each word, but the rows do not
// contain the words.
#pragma once

#include <map>
#include <string>

#include "lmx/data.h"

namespace lmx {

struct VocabularyMark {
  int64_t entries = 0;
  std::string sha256;  // of the words in the order of their ids; "" if it was not recorded
};

VocabularyMark mark_of(const Vocabulary& vocabulary);
// The mark as numbers of a checkpoint, and as metadata of a file of parameters.
void put_mark(std::map<std::string, std::string>& values, const VocabularyMark& mark);
VocabularyMark get_mark(const std::map<std::string, std::string>& values);

}  // namespace lmx
