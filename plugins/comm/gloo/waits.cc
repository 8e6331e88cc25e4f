#include "waits.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lmx/error.h"

namespace lmx_gloo {

Waits::Waits(Watchdog& watchdog) : watchdog_(watchdog) {
  watchdog_.on_failure(this, [this] { interrupt(); });
}

Waits::~Waits() {
  watchdog_.on_failure(this, nullptr);
}

void Waits::until_received(Buffer& buffer, int from, const std::function<void()>& if_ended) {
  std::string why;
  if (completes(
          buffer, [&] { return buffer.waitRecv(kForever); }, why))
    return;
  if (if_ended) if_ended();
  lost(from, why);
}

void Waits::until_sent(Buffer& buffer, int to) {
  std::string why;
  if (!completes(
          buffer, [&] { return buffer.waitSend(kForever); }, why))
    lost(to, why);
}

void Waits::call(int other, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {  // Gloo also throws std::system_error
    lost(other, e.what());
  }
}

bool Waits::completes(Buffer& buffer, const std::function<bool()>& body, std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!interrupted_) waiting_.insert(&buffer);
  }
  bool complete = false;
  why = "interrupted";
  try {
    complete = !interrupted_ && body();
  } catch (const std::exception& e) {
    why = e.what();
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.erase(&buffer);
  }
  return complete;
}

void Waits::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (Buffer* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

void Waits::lost(int other, const std::string& why) {
  if (other >= 0) watchdog_.note_lost(other);
  watchdog_.lost_connection(lmx::str(other >= 0 ? lmx::str("the connection to rank ", other) : "a connection",
                                     " is lost, although all ranks seem to live: ", why));
}

Inbox::Inbox(std::shared_ptr<gloo::Context> context, std::vector<int> ranks, uint64_t slot, size_t bytes,
             Handlers handlers)
    : context_(std::move(context)),
      slot_(slot),
      handlers_(std::move(handlers)),
      bytes_(bytes),
      ranks_(std::move(ranks)) {
  renew_buffer();
  if (!ranks_.empty()) thread_ = std::thread([this] { loop(); });
}

Inbox::~Inbox() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    buffer_->abortWaitRecv();
  }
  if (thread_.joinable()) thread_.join();
}

// Returns false if this object is being destroyed.
bool Inbox::renew_buffer() {
  const std::lock_guard lock(mutex_);
  if (!stop_) buffer_ = context_->createUnboundBuffer(bytes_.data(), bytes_.size());
  return !stop_;
}

void Inbox::loop() {
  while (!ranks_.empty()) {
    try {
      int from = -1;
      buffer_->recv(ranks_, slot_, 0, bytes_.size());
      if (!buffer_->waitRecv(&from, kForever)) return;
      handlers_.message(from, bytes_.data());
    } catch (const std::exception&) {
      // A buffer that has seen an error throws it again for ever.
      if (!renew_buffer()) return;
      drop_lost();
    }
  }
}

// Gloo reports that a connection is lost, but not which one. Therefore a message that is never received is sent over
// each: an intact connection accepts it, and a lost one throws.
void Inbox::drop_lost() {
  const auto is_lost = [&](int rank) {
    std::byte nothing{};
    const std::unique_ptr<Buffer> probe = context_->createUnboundBuffer(&nothing, 1);
    try {
      probe->send(rank, ~slot_, 0, 1);
      return false;
    } catch (const std::exception&) {
      return true;
    }
  };
  const auto end = std::stable_partition(ranks_.begin(), ranks_.end(), [&](int rank) { return !is_lost(rank); });
  std::for_each(end, ranks_.end(), handlers_.lost);
  ranks_.erase(end, ranks_.end());
}

}  // namespace lmx_gloo
