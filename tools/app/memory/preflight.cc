#include "app/memory/preflight.h"

#include <cstdio>

#include "base/text.h"
#include "lmx/log.h"
#include "tensor/caching_allocator.h"
#include "tensor/memory_text.h"

namespace lmx {

using namespace train;

PreflightChoice choose_preflight(const Recipe& recipe, const std::optional<MemoryCheck>& check, int64_t steps,
                                 bool resumed) {
  if (recipe.train.preflight != "auto")
    return {recipe.train.preflight == "true", str("train.preflight is ", recipe.train.preflight)};
  if (resumed) return {false, "the run is resumed"};
  if (steps > 0 && steps < kPreflightSteps) return {false, str("the run has fewer than ", kPreflightSteps, " steps")};
  if (!check || check->allowed(recipe) == 0) return {true, "the memory of this run or of the machine is unknown"};
  const auto part = static_cast<double>(check->machine) / static_cast<double>(check->allowed(recipe));
  const bool on = part > kPreflightPart;
  const std::string quarter = str(std::llround(100 * kPreflightPart), " % of the memory");
  return {on, str("the estimate, ", bytes_text(check->machine), ", is ", on ? "above " : "at most ", quarter)};
}

std::string describe(const Rehearsal& r) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", r.seconds);
  return str("step ", r.batch.step + 1, " (", r.batch.shape, ") took ", seconds, " s; peak memory ",
             peak_text(r.memory));
}

void preflight(Session& s, int64_t from, const std::optional<MemoryCheck>& check) {
  const int64_t optimizer = s.memory().current[static_cast<size_t>(MemClass::optimizer)];
  const int64_t cap = check ? check->cap(check->allowed(s.recipe), optimizer) : 0;
  const Rehearsal r = rehearse(s, largest_batch(s, from), cap);
  if (r.failure.empty()) {
    if (s.leads()) log_info(str("preflight: ", describe(r)));
    return;
  }
  const char* const key = s.sub_batches() ? "batch.micro_tokens" : "batch.micro";
  throw OutOfMemory(str("[memory] preflight: out of memory in the largest batch of the epoch, that of step ",
                        r.batch.step + 1, " (", r.batch.shape, "): ", r.failure, ". ", key,
                        " divides a batch into smaller passes with the same results up to rounding, and "
                        "batch.fit=memory chooses its value"));
}

}  // namespace lmx
