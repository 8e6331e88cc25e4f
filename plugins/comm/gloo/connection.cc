#include "gloo_link.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lmx/error.h"
#include "messages.h"
#include "waits.h"

namespace lmx_gloo {
namespace {

using lmx::Tensor;
using lmx::processes::Move;
using lmx::processes::Waiting;

// Each message is announced by its tag and its length, because Gloo cannot show which messages have arrived, and does
// not check their lengths.
struct Notice {
  int64_t tag, bytes;
};
constexpr uint64_t kNotices = 0;

// Slot of the data of the messages with this tag, which is not negative. The slot kNotices is not used.
uint64_t slot_of_data(int tag, const Tensor& t) {
  return slot_of(tag + 1, t.bytes());
}

// One message to another rank with its announcement, until both are sent.
struct Outgoing {
  Outgoing(gloo::Context& context, const Tensor& t, int rank, int tag) : tensor(t), notice{tag, t.bytes()}, to(rank) {
    announcement = context.createUnboundBuffer(&notice, sizeof notice);
    data = buffer_of(context, tensor);
    announcement->send(to, kNotices, 0, sizeof notice);
    data->send(to, slot_of_data(tag, tensor), 0, static_cast<size_t>(tensor.bytes()));
  }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  Tensor tensor;
  Notice notice;
  int to;
  std::unique_ptr<Buffer> announcement, data;
};

std::vector<int> other_ranks(const gloo::Context& context) {
  std::vector<int> ranks;
  for (int r = 0; r < context.size; ++r)
    if (r != context.rank) ranks.push_back(r);
  return ranks;
}

// State that all connections of a rank share: announced messages, and posted messages that are not yet sent.
class Mailbox {
 public:
  Mailbox(std::shared_ptr<gloo::Context> context, Waits& waits)
      : context_(std::move(context)),
        waits_(waits),
        reaper_([this] { reap(); }),
        inbox_(context_, other_ranks(*context_), kNotices, sizeof(Notice),
               {[this](int from, const std::byte* message) { note(from, message); },
                [this](int rank) { waits_.watchdog().note_lost(rank); }}) {}

  // Posted messages have been received by now, unless the job fails.
  ~Mailbox() {
    {
      std::unique_lock lock(mutex_);
      sent_.wait_for(lock, std::chrono::seconds(1), [this] { return posted_.empty(); });
      stop_ = true;
      if (!posted_.empty()) {
        posted_.front()->announcement->abortWaitSend();
        posted_.front()->data->abortWaitSend();
      }
    }
    posted_or_stopped_.notify_all();
    reaper_.join();
  }

  void send(const Tensor& t, int to, int tag) {
    std::optional<Outgoing> message;
    waits_.call(to, [&] { message.emplace(*context_, t, to, tag); });
    waits_.until_sent(*message->announcement, to);
    waits_.until_sent(*message->data, to);
  }

  void post(const Tensor& t, int to, int tag) {
    const std::lock_guard lock(mutex_);
    waits_.call(to, [&] { posted_.push_back(std::make_unique<Outgoing>(*context_, t, to, tag)); });
    posted_or_stopped_.notify_all();
  }

  void receive(Tensor& t, int from, int tag) {
    const std::unique_ptr<Buffer> buffer = buffer_of(*context_, t);
    waits_.call(from, [&] { buffer->recv(from, slot_of_data(tag, t), 0, static_cast<size_t>(t.bytes())); });
    const Awaited awaited(*this, {from, tag, t.bytes(), buffer.get()});
    waits_.until_received(*buffer, from, [&] { awaited.check(); });
    // The announcement was sent first, but another thread reads it.
    std::unique_lock lock(mutex_);
    noted_.wait(lock, [&] { return first_from(from, tag) != arrived_[tag].end(); });
    const auto own = first_from(from, tag);
    check_length(from, own->bytes, context_->rank, t.bytes());
    arrived_[tag].erase(own);
  }

  int probe(int tag) {
    waits_.watchdog().end_if_another_failed();
    const std::lock_guard lock(mutex_);
    const std::deque<Arrival>& messages = arrived_[tag];
    return messages.empty() ? -1 : messages.front().from;
  }

  Waits& waits() { return waits_; }

 private:
  struct Arrival {
    int from;
    int64_t bytes;
  };
  struct Wanted {
    int from, tag;
    int64_t bytes;
    Buffer* buffer;
  };
  // A message that a rank waits for, as long as this object exists. If a message of another length is announced in its
  // place, the wait ends.
  class Awaited {
   public:
    Awaited(Mailbox& box, const Wanted& wanted) : box_(box), wanted_(wanted) {
      const std::lock_guard lock(box_.mutex_);
      box_.wanted_.push_back(&wanted_);
      box_.end_if_different(wanted_);
    }
    ~Awaited() {
      const std::lock_guard lock(box_.mutex_);
      std::erase(box_.wanted_, &wanted_);
    }
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

    // Throws if that has ended the wait.
    void check() const {
      const std::lock_guard lock(box_.mutex_);
      if (box_.is_different(wanted_))
        check_length(wanted_.from, box_.first_from(wanted_.from, wanted_.tag)->bytes, box_.context_->rank,
                     wanted_.bytes);
    }

   private:
    Mailbox& box_;
    const Wanted wanted_;
  };

  // These three are called with the mutex locked.
  std::deque<Arrival>::iterator first_from(int from, int tag) {
    std::deque<Arrival>& messages = arrived_[tag];
    return std::find_if(messages.begin(), messages.end(), [&](const Arrival& a) { return a.from == from; });
  }
  bool is_different(const Wanted& wanted) {
    const auto first = first_from(wanted.from, wanted.tag);
    return first != arrived_[wanted.tag].end() && first->bytes != wanted.bytes;
  }
  void end_if_different(const Wanted& wanted) {
    if (is_different(wanted)) wanted.buffer->abortWaitRecv();
  }

  void note(int from, const std::byte* message) {
    Notice notice{};
    std::memcpy(&notice, message, sizeof notice);
    const std::lock_guard lock(mutex_);
    arrived_[static_cast<int>(notice.tag)].push_back({from, notice.bytes});
    for (const Wanted* wanted : wanted_) end_if_different(*wanted);
    noted_.notify_all();
  }

  // Frees posted messages that have been sent, in the order in which they were posted.
  void reap() {
    std::unique_lock lock(mutex_);
    for (;;) {
      posted_or_stopped_.wait(lock, [this] { return stop_ || !posted_.empty(); });
      if (stop_) return;
      Outgoing& first = *posted_.front();
      lock.unlock();
      bool sent = false;
      try {
        sent = first.announcement->waitSend(kForever) && first.data->waitSend(kForever);
      } catch (const std::exception&) {  // the connection is lost
        waits_.watchdog().note_lost(first.to);
      }
      lock.lock();
      if (stop_ && !sent) return;
      posted_.pop_front();
      if (posted_.empty()) sent_.notify_all();
    }
  }

  std::shared_ptr<gloo::Context> context_;
  Waits& waits_;
  std::mutex mutex_;
  std::condition_variable noted_, posted_or_stopped_, sent_;
  std::map<int, std::deque<Arrival>> arrived_;  // announced messages, by tag
  std::vector<const Wanted*> wanted_;           // messages that a receiver waits for
  std::deque<std::unique_ptr<Outgoing>> posted_;
  bool stop_ = false;
  std::thread reaper_;
  Inbox inbox_;
};

class GlooConnection final : public lmx::Connection {
 public:
  // `watched`: the connection belongs to the rank's own thread, whose waits the watchdog judges.
  GlooConnection(std::shared_ptr<Mailbox> mailbox, bool watched) : mailbox_(std::move(mailbox)), watched_(watched) {}
  void send(const Tensor& t, int to, int tag) override {
    const auto waiting = wait_as(Move::send);
    mailbox_->send(t, to, tag);
  }
  void post(const Tensor& t, int to, int tag) override { mailbox_->post(t, to, tag); }
  void receive(Tensor& t, int from, int tag) override {
    const auto waiting = wait_as(Move::receive);
    mailbox_->receive(t, from, tag);
  }
  int probe(int tag) override { return mailbox_->probe(tag); }

 private:
  std::unique_ptr<Waiting> wait_as(Move move) const {
    return watched_ ? std::make_unique<Waiting>(mailbox_->waits().watchdog(), move) : nullptr;
  }

  std::shared_ptr<Mailbox> mailbox_;
  bool watched_;
};

}  // namespace

std::vector<std::unique_ptr<lmx::Connection>> make_connections(int n, std::shared_ptr<gloo::Context> context,
                                                               Waits& waits) {
  const auto mailbox = std::make_shared<Mailbox>(std::move(context), waits);
  std::vector<std::unique_ptr<lmx::Connection>> made;
  for (int i = 0; i < n; ++i) made.push_back(std::make_unique<GlooConnection>(mailbox, i == 0));
  return made;
}

}  // namespace lmx_gloo
