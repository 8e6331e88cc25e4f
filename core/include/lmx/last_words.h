// Termination notes: a run registers a function that records the reason if another thread must end the process at once.
// That happens if a rank is lost while the run's own thread waits for it inside MPI.
#pragma once

#include <functional>
#include <string>

#include "lmx/api.h"

namespace lmx {

// While this object lives, the thread that ends the process calls `note` with the reason. `note` must not wait for the
// run's thread. At most one object exists at a time.
class LMX_API LastWords {
 public:
  explicit LastWords(std::function<void(const std::string& reason)> note);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

// To be called by the thread that is about to end the process. Does not throw.
LMX_API void say_last_words(const std::string& reason);

}  // namespace lmx
