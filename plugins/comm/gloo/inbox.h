// A thread that receives short messages of one length from other ranks.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "waits.h"

namespace lmx_gloo {

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
