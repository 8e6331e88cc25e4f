// `batch.fit: memory` on a planned machine: the search of a run, with the memory of the machine's file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/memory/counted.h"
#include "recipe/recipe.h"

namespace lmx::plan {

// The size of a pass that batch.fit has chosen.
struct ChosenPass {
  int64_t size = 0;  // sequences; with `pairs` target tokens
  bool pairs = false;
  int64_t passes = 1;  // of a rank in a step, at most
  bool fits = true;    // false: the size is the one that needs least memory, and even that is too much
  // The memory alone limits batch.global, because the size of the text is unknown.
  bool unknown_text = false;
  std::string text() const;  // "12 sequences"
};

// Bytes of a rank of this recipe.
using RankBytes = std::function<int64_t(const Recipe&)>;
// Chooses `recipe.batch` so that a rank needs at most 90 % of `memory_gb` (10^9 bytes), or at most memory.budget if the
// recipe has one and the machine as much. (In a run the ranks on a machine share the budget.) `outline`: of the recipe,
// with any batch. `epoch_tokens`: of the training text, if the request states them; NaN: they are not known.
ChosenPass fit_batch(Recipe& recipe, const Outline& outline, double memory_gb,
                     const std::optional<double>& epoch_tokens, const RankBytes& bytes);
// The memory that a choice may take, as an assumption of a plan.
std::string fit_note(const Recipe& recipe, double memory_gb);

}  // namespace lmx::plan
