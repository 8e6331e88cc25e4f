#include "app/plan/fit.h"

#include <algorithm>
#include <cmath>

#include "app/datasets/open.h"
#include "app/memory/batch_fit.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::plan {

std::string ChosenPass::text() const {
  return str(count_text(size), pairs ? " token" : " sequence", size == 1 ? "" : "s");
}

namespace {

// NaN: they are not known.
std::optional<int64_t> known_tokens(double tokens) {
  if (std::isnan(tokens)) return {};
  return std::llround(tokens);
}

}  // namespace

ChosenPass fit_batch(Recipe& recipe, const Outline& outline, double memory_gb,
                     const std::optional<double>& epoch_tokens, const RankBytes& bytes) {
  const double budget = recipe.memory.budget,
               allowed = budget > 0 ? std::min(budget, memory_gb) : kFittedPart * memory_gb;
  std::optional<int64_t> tokens = 0;
  if (recipe.batch.global == 0)
    tokens = epoch_tokens ? known_tokens(*epoch_tokens) : check_dataset(recipe.data).train_tokens;
  const FitSizes sizes(recipe, outline.batch, outline.shares.ranks, tokens.value_or(kUnknownTokens));
  Recipe own = recipe;
  const auto bytes_of = [&](const BatchConfig& batch) {
    own.batch = batch;
    return bytes(own);
  };
  const int64_t size =
      sizes.largest([&](const BatchConfig& batch) { return static_cast<double>(bytes_of(batch)) <= allowed * 1e9; });
  const int64_t chosen = size > 0 ? size : sizes.cheapest(bytes_of);
  recipe.batch = sizes.batch(chosen);
  return {chosen, sizes.pairs(), sizes.passes(chosen), size > 0, !tokens};
}

std::string fit_note(const Recipe& recipe, double memory_gb) {
  const double budget = recipe.memory.budget;
  const std::string most = budget > memory_gb
                               ? str("the memory of the device, ", bytes_text(std::llround(memory_gb * 1e9)))
                           : budget > 0 ? str("memory.budget, ", bytes_text(std::llround(budget * 1e9)))
                                        : str(std::llround(100 * kFittedPart), " % of the device's memory");
  return str("batch.fit chooses passes that take at most ", most,
             " on each rank; a run chooses less if its probe does not fit");
}

}  // namespace lmx::plan
