// Waits for Gloo's buffers, and a thread that receives short messages. Gloo has no call that asks whether a message is
// complete, so another thread ends a wait.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

// A thread that receives short messages of one length from other ranks.
class Inbox {
 public:
  // Both functions run in the thread of this object: for each message, and once for each rank whose connection is lost.
  struct Handlers {
    std::function<void(int from, const std::byte* message)> message;
    std::function<void(int rank)> lost;
  };
  Inbox(std::shared_ptr<gloo::Context> context, std::vector<int> ranks, uint64_t slot, size_t bytes, Handlers handlers);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

 private:
  void loop();
  void drop_lost();
  bool renew_buffer();

  std::shared_ptr<gloo::Context> context_;
  uint64_t slot_;
  Handlers handlers_;
  std::vector<std::byte> bytes_;
  std::vector<int> ranks_;  // whose connections are not lost
  std::mutex mutex_;        // protects stop_ and the exchange of buffer_
  std::unique_ptr<Buffer> buffer_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lmx_gloo
