// Termination notes: a run registers a function that records the reason if another thread must end the process at once.
// That happens if a rank is lost while the run's own thread waits for it inside MPI.
#pragma once

#include <functional>
#include <string>

#include "lmx/api.h"

namespace lmx {

// While this object lives, the thread that ends the process calls `note` with the reason. `note` must not wait for the
// run's thread. At most one object exists at a time.
class LMX_API TerminationNote {
 public:
  explicit TerminationNote(std::function<void(const std::string& reason)> note);
  ~TerminationNote();
  TerminationNote(const TerminationNote&) = delete;
  TerminationNote& operator=(const TerminationNote&) = delete;
};

// To be called by the thread that is about to end the process. Does not throw.
LMX_API void leave_termination_note(const std::string& reason);

}  // namespace lmx
