// Runs the threads of a kernel, one block after the other and one thread after the other.
//
// Each thread runs until it ends or meets a barrier. A thread that waits keeps its stack (a fiber), so kernels without
// barriers run all their threads on one stack. The order of blocks and threads is ascending, descending or scrambled
// (set_order), because a missing barrier is often right by chance in one of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "include/cuda_runtime.h"

namespace cuda_emulator {

enum class Order { ascending, descending, scrambled };

// The order of threads, warps and blocks, and of independent streams: LMX_EMULATED_ORDER, or ascending. A scrambled
// order is another one in each launch, by a fixed seed.
void set_order(Order order);
Order order();
// A number below n by the seed of the scrambled order.
uint64_t next_random(uint64_t n);

struct Launch {
  dim3 grid, block;
  size_t shared = 0;  // bytes of dynamic shared memory, filled with 0xFF when a block begins
  std::string name;   // of the kernel, in messages
  bool early = false;  // the kernel may start while the one before it runs
  std::function<void()> body;
};
// Faults: a thread of an early kernel that does not wait for the kernel before it, a barrier that some threads never reach, a warp's exchange that some lanes of its mask never reach, a mask
// that excludes the calling lane.
void run(const Launch& launch);

bool running_kernel();
// "[softmax] block (3, 0, 0), thread (7, 0, 0): " while a kernel runs, else "".
std::string where_running();
// The error of an access at this address beside the block's shared memory; "" if it is somewhere else.
std::string shared_memory_at(const void* address);

}  // namespace cuda_emulator
