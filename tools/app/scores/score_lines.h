// The checks of lines that all scores share.
#pragma once

#include <span>

#include "app/scores/bleu.h"

namespace lmx::data {

// UserError: no reference, no lines, different line counts.
void check_score_lines(const Lines& hypothesis, std::span<const Lines> references);

}  // namespace lmx::data
