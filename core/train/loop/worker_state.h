// The numbers of a worker of a parameter server: what workers send each other when they meet, and what a checkpoint
// stores of each one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/position.h"

namespace lmx {

// The sums of a window as numbers. `params`, `terms`: names of the parameters and of the model's loss terms.
std::vector<double> window_numbers(const Window& w, const std::vector<std::string>& params,
                                   const std::vector<std::string>& terms);
// Adds such sums to a window.
void add_window(Window& w, std::span<const double> numbers, const std::vector<std::string>& params,
                const std::vector<std::string>& terms);

// Collective. The overflows of all ranks, if each has its own loss scale; the scale is that of this rank.
ScaleState scale_of_ranks(const Session& s, const ScaleState& own);

// The state of this worker that a checkpoint stores; for worker 0 it includes the order of events so far.
StateDict pack_worker(const RunState& run);
// Restores it. UserError: `own` is not the state of such a worker.
void unpack_worker(Session& s, const StateDict& own, Position& at);

}  // namespace lmx
