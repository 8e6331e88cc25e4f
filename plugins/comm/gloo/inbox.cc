#include "inbox.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace lmx_gloo {

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
