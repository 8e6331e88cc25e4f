// What a run wants noted when another thread has to end the process at once: a rank is lost, and the run's own thread
// waits for it inside MPI.
#pragma once

#include <functional>
#include <string>

#include "lmx/api.h"

namespace lmx {

// While it lives, `note` is called with the reason by whoever ends the process; it must not wait for the run's thread.
// One at a time.
class LMX_API LastWords {
 public:
  explicit LastWords(std::function<void(const std::string& reason)> note);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

// For the thread that is about to end the process. Throws nothing.
LMX_API void say_last_words(const std::string& reason);

}  // namespace lmx
