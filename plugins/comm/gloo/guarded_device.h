// A device of Gloo whose listening sockets receive packets from the ranks of the job only.
//
// Gloo authenticates no connection: the first that reaches the socket of a pair of ranks becomes that pair. Gloo closes
// the socket as soon as the pair is connected.
#pragma once

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <mutex>
#include <vector>

#include "source_filter.h"

namespace lmx_gloo {

class GuardedDevice final : public gloo::transport::tcp::Device {
 public:
  // Starts Gloo's thread for events, which does not take the processor from other threads when it wakes up.
  static std::shared_ptr<GuardedDevice> make(const gloo::transport::tcp::attr& attributes);
  explicit GuardedDevice(const gloo::transport::tcp::attr& attributes);

  // Exchanges through the store from which addresses the ranks will connect to each other. Until then the listening
  // sockets of this device receive nothing. All ranks call this before they make pairs, so the kernel never drops a
  // packet of a rank.
  void learn_sources(gloo::rendezvous::Store& store, int rank, int world);

  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override;

  // Restricts the listening socket of a new pair. Returns false if another program has connected to it before that.
  // If the kernel refuses the filter, warns once and returns true.
  bool guard(const gloo::transport::Pair& pair);

 private:
  bool restrict_to_sources(const gloo::transport::Pair& pair);

  std::vector<IpAddress> sources_;
  std::once_flag warned_;
};

}  // namespace lmx_gloo
