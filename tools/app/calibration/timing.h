// Times for a calibration: all ranks measure at the same time, since they share the machine. The host waits for a GPU
// after many calls only, since it runs ahead of it in a step as well.
#pragma once

#include <functional>
#include <optional>

#include "app/memory/counted.h"
#include "app/plan/machine.h"
#include "lmx/comm.h"
#include "lmx/context.h"

namespace lmx::app::calibration {

// 1 / the mean of 1 / `own` over the ranks. If more ranks than cores compute, a scheduler may give one rank a core of
// its own and leave the others to share the rest, so the time of one rank shows little; the sum of all rates is the
// machine's. Collective.
double seconds_of_mean_rate(Communicator& comm, double own);
// Seconds of one call of `body`, which computes on ctx.device, while all ranks call it, at the mean rate of the ranks.
// The time of a rank is a mean, since a median would not contain the pauses of a rank that shares its core. Collective.
double together_s(const Context& ctx, const std::function<void()>& body);
// Waits until the device of `ctx` has done its work.
void finish_work(const Context& ctx);
// How many seconds a second of processor time takes this thread while all ranks call `body`: 2 if twice as many ranks
// as cores compute. Collective.
double stretch_of(Communicator& comm, const std::function<void()>& body);
// Seconds of one call of `body` on this thread while another thread is inside `beside`, which is called once on each
// rank; `calls`: how often `body` was called meanwhile. Both are means of the ranks. Collective.
struct Beside {
  double seconds = 0;  // of `beside`
  double calls = 0;
};
Beside beside_s(Communicator& comm, const std::function<void()>& body, const std::function<void()>& beside);
// The median of the seconds between two barriers over some calls, without those of a barrier itself. Collective.
double between_barriers_s(Communicator& comm, const std::function<void()>& body, int calls);

// The times of forward and backward passes, without data and without a training.

// The recipe with the batch that is measured: with batch.fit=memory, the largest one that measure_pass() accepts on all
// ranks. Collective.
Recipe with_measured_batch(const Context& ctx, const Recipe& recipe, int ranks_here);

// Bytes of the memory in which a device computes; 0: not known.
int64_t memory_of(Device device);

// Seconds of the forward and backward pass of the outline's shape over random words, with random parameters: until the
// slowest rank has ended, while all ranks compute. On a GPU some passes follow each other without a wait, as in a run.
// Nothing is updated or exchanged. Empty: `known` holds this pass, the pass needs more than half of the memory of
// ctx.device, or the model or loss cannot run without data. Collective.
std::optional<plan::MeasuredPass> measure_pass(const Context& ctx, const Recipe& recipe, const Outline& outline,
                                               const std::vector<plan::MeasuredPass>& known, int ranks_here);

}  // namespace lmx::app::calibration
