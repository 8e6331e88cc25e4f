// Facts about a component that follow from its config alone, before an object is made from it.
//
// A plugin's config states them by `Traits traits() const`; the core asks for them by these names, and for nothing else
// in the config. A name that is absent has the usual meaning that is given here.
#pragma once

#include <map>
#include <string>

namespace lmx {

using Traits = std::map<std::string, std::string>;

namespace trait {

// Communicators. "true": the ranks are threads of one process, and exchange gradients after the backward pass. Absent:
// each rank is a process.
inline constexpr const char* kOneProcess = "one_process";
// Communicators. The key of the config that lets sums be computed in an order that is not fixed, so that the bits of two
// runs may differ. Absent: sums are computed in rank order.
inline constexpr const char* kUnorderedSums = "unordered_sums";
// Sync strategies. Describes the clock of asynchronous workers, which must be equal in all rules of a recipe. Absent: the
// strategy is synchronous.
inline constexpr const char* kWorkerClock = "worker_clock";

}  // namespace trait
}  // namespace lmx
