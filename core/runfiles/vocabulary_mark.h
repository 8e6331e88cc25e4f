// Which vocabulary parameters were trained with: a table has a row for each word, and nothing in the rows says for
// which.
#pragma once

#include <map>
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

}  // namespace lmx::train
