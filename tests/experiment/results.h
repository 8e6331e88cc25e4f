// Reads cells and verdicts from the results.json of an experiment.
#pragma once

#include "process/run_fixture.h"

namespace lmx_test {

inline Json cell(const Json& results, const std::string& id) {
  for (const Json& c : results["cells"])
    if (c["id"] == id) return c;
  ADD_FAILURE() << "no cell " << id;
  return {};
}

// The verdict whose claim begins with `claim`.
inline Json verdict(const Json& results, const std::string& claim) {
  for (const Json& v : results["verdicts"])
    if (v["claim"].get<std::string>().starts_with(claim)) return v;
  ADD_FAILURE() << "no claim " << claim << " in " << results["verdicts"];
  return {{"verdict", ""}, {"measured", ""}};
}

}  // namespace lmx_test
