#include "waits.h"

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

}  // namespace lmx_gloo
