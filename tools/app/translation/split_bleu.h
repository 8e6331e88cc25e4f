// BLEU of a translation run on a split of its data.
#pragma once

#include <string>

#include "app/scores/bleu.h"
#include "app/translation/translation_model.h"
#include "data/dataset.h"

namespace lmx::train {

struct SplitBleu {
  BleuScore bleu;   // sacreBLEU: 13a on detokenized text against the original lines
  BleuScore multi;  // multi-bleu on the preparation's words
  BleuScore split;  // multi-bleu on the preparation's words with compounds split
  std::string signature;
};
// Translates the sources of "valid" or "test" of `data`, which `recipe.data` names. UserError: the split has no pairs.
SplitBleu bleu_of_split(const TranslationModel& model, const Recipe& recipe, const Dataset& data,
                        const std::string& split, const TranslateOptions& options);

}  // namespace lmx::train
