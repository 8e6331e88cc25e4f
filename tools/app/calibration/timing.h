// Times for a calibration: all ranks measure at the same time, since they share the machine.
#pragma once

#include <functional>

#include "lmx/comm.h"

namespace lmx::plan {

// Seconds of one call of `body` while all ranks call it: a mean, since a median would not contain the pauses of a rank
// that shares its core. Collective.
double together_s(Communicator& comm, const std::function<void()>& body);
// The same while only one rank at a time calls it. Collective.
double alone_s(Communicator& comm, const std::function<void()>& body);
// Seconds of one call of `body` on this thread while another thread is inside `beside`, which is called once on each
// rank; `calls`: how often `body` was called meanwhile, at least 1. Collective.
struct Beside {
  double seconds = 0;  // of `beside`
  double calls = 0;
};
Beside beside_s(Communicator& comm, const std::function<void()>& body, const std::function<void()>& beside);
// The median of the seconds between two barriers, without those of a barrier itself. Collective.
double between_barriers_s(Communicator& comm, const std::function<void()>& body);

}  // namespace lmx::plan
