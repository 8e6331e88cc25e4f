// The checks of sync strategies, as functions that every rank of a group calls and that return what they found. `lmx
// plugins check` prints the findings of virtual ranks; tests/sync also runs the checks on ranks that are processes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "conformance/conformance.h"
#include "lmx/comm.h"

namespace lmx_cli::check {

// The observations on one rank.
struct Observation {
  bool server = false;  // an asynchronous strategy, which has no reduce(): nothing was checked
  // The first finding of each check that failed.
  std::map<std::string, std::string> findings;
  std::map<std::string, double> distances;  // the measured distance of checks that compare with a bound
  size_t kept = 0;                          // tensors in the state
  uint64_t digest = 0;  // of all results: equal for every kind of communicator with the same number of ranks

  void add(const std::string& check, const std::string& finding) { findings.emplace(check, finding); }
  // Adds what another rank or group observed. An earlier finding of the same check has priority.
  void merge(const Observation& other);
};

// Runs the checks "units", "ledger", "ranks", "determinism", "state", "rows" and "sum" over some steps.
Observation observe_steps(lmx::Communicator& comm, const Subject& subject);

// The checks "discard", "rescale" and "mean" of the residual that a strategy keeps for later steps. If all steps have
// the same gradient, the mean result of a strategy that later sends what it left out converges to the sum. That of a
// strategy that scales the sum, or sends residuals twice, does not.
void observe_discard(lmx::Communicator& comm, const Subject& subject, Observation& seen);
void observe_rescale(lmx::Communicator& comm, const Subject& subject, Observation& seen);
void observe_mean(lmx::Communicator& comm, const Subject& subject, Observation& seen);
inline constexpr int kMeanSteps = 256;
inline constexpr double kMeanBound = 0.3;

}  // namespace lmx_cli::check
