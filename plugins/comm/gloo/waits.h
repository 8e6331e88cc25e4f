// Waits for Gloo's buffers. Gloo has no call that asks whether a message is complete, so another thread ends the wait.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "processes/watchdog.h"

namespace lmx_gloo {

using Buffer = gloo::transport::UnboundBuffer;
using lmx::processes::Watchdog;

// A buffer of Gloo over the memory of `t`, which is only read if it is sent.
inline std::unique_ptr<Buffer> buffer_of(gloo::Context& context, const lmx::Tensor& t) {
  return context.createUnboundBuffer(const_cast<void*>(t.raw()), static_cast<size_t>(t.bytes()));
}

// Longer than any run. Gloo closes all connections when its own time limit passes; the watchdog has the limits here.
inline constexpr std::chrono::hours kForever{24 * 365};

// The waits of one rank. If another rank has announced its failure, or the connection to it is lost, they end in
// EndProcess or RunError.
class Waits {
 public:
  explicit Waits(Watchdog& watchdog);
  ~Waits();
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  // `if_ended` is called if the wait has ended without the message; it may throw the reason.
  void until_received(Buffer& buffer, int from, const std::function<void()>& if_ended = {});
  void until_sent(Buffer& buffer, int to);
  // Runs a call of Gloo that needs the connection to rank `other`; -1: to any rank.
  void call(int other, const std::function<void()>& body);
  Watchdog& watchdog() { return watchdog_; }

 private:
  // Runs `body`, a wait for this buffer. Returns false if it has ended early, and the reason in `why`.
  bool completes(Buffer& buffer, const std::function<bool()>& body, std::string& why);
  void interrupt();
  [[noreturn]] void lost(int other, const std::string& why);

  Watchdog& watchdog_;
  std::mutex mutex_;
  std::set<Buffer*> waiting_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace lmx_gloo
