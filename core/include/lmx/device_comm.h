// Parts of a communicator that moves tensors between the memories of devices by a library for devices, such as NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lmx/api.h"
#include "lmx/tensor.h"

namespace lmx {

class CudaDevice;

// A text that identifies a CUDA device among all devices of all hosts.
LMX_API std::string identity_of(Device device);

// A stream of a CUDA device for exchanges, beside the one on which ops compute. There is one for each device. Used by
// one thread at a time. If gradients are exchanged in parallel with backward, the thread that does it enqueues all its
// work here, including the kernels of ops that it calls; begin() and end() then have nothing to order.
class LMX_API ExchangeStream {
 public:
  explicit ExchangeStream(Device device);  // UserError: that device is not available
  void* stream() const;                    // a cudaStream_t
  // Work that is enqueued here from now on runs after the work that the calling thread's ops have enqueued so far.
  void begin();
  // Work that the calling thread's ops enqueue from now on runs after the work that is enqueued here. The host does not
  // wait.
  void end();
  // The host waits until the work that is enqueued here is done.
  void wait();
  // From now on, `begin` is called when the host begins to wait for work of the device; the wait lasts while its result
  // lives. `end` is called after a wait, and throws if the work has ended without a result because an exchange has
  // failed. Null ends that.
  void guard_waits(std::function<std::shared_ptr<void>()> begin, std::function<void()> end);

 private:
  CudaDevice& device_;
};

// A communicator whose collectives take tensors in the memory of a device. Other communicators of processes get copies
// in the memory of the host.
class LMX_API DeviceMoves {
 public:
  virtual ~DeviceMoves();
  // This rank computes on `device`. Collective, and called before the first exchange of such a tensor. UserError: the
  // devices of the ranks cannot exchange data.
  virtual void join(Device device) = 0;
};

// The knowledge of a communicator of processes about the other ranks. Thread-safe.
class LMX_API Liveness {
 public:
  virtual ~Liveness();
  // Calls `interrupt`, on another thread, when another rank has failed. It must return soon. One function for each
  // `owner`; null ends that.
  virtual void on_failure(const void* owner, std::function<void()> interrupt) = 0;
  // While the returned object lives, this rank waits for work of a device that depends on other ranks.
  virtual std::shared_ptr<void> waiting_for_device() = 0;
  // Throws EndProcess if another rank has announced that it fails. That rank reports its error first.
  virtual void end_if_another_failed() const = 0;
  // To be called if an exchange with other ranks has failed, which `what` describes. Waits for the message that names
  // the lost rank; throws RunError if there is none.
  [[noreturn]] virtual void lost_connection(const std::string& what) const = 0;
};

}  // namespace lmx
