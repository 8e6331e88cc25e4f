#include "gloo_link.h"

#include <gloo/allreduce.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "messages.h"
#include "waits.h"

namespace lmx_gloo {
namespace {

using lmx::processes::Beat;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kSlot = 1;

// If a sender has waited this long for one rank, another thread sends to the other ranks.
constexpr std::chrono::milliseconds kSlow{20};

// Threads send and receive the heartbeats, since Gloo can only wait for a message. Usually one sender suffices; a rank
// that is stopped or cut off keeps one thread waiting.
class GlooBeats final : public lmx::processes::BeatLink {
 public:
  explicit GlooBeats(std::shared_ptr<gloo::Context> context)
      : context_(std::move(context)), lines_(static_cast<size_t>(context_->size)) {
    for (Line& line : lines_) line.buffer = context_->createUnboundBuffer(&line.out, sizeof(Beat));
    for (int r = 0; r < context_->size; ++r)
      if (r != context_->rank)
        inboxes_.push_back(
            std::make_unique<Inbox>(context_, std::vector<int>{r}, kSlot, sizeof(Beat),
                                    Inbox::Handlers{[this](int from, const std::byte* message) { take(from, message); },
                                                    [this](int rank) { note_lost(rank); }}));
  }

  ~GlooBeats() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      due_.clear();
      for (Line& line : lines_)
        if (line.pending) line.buffer->abortWaitSend();
    }
    work_.notify_all();
    for (std::thread& thread : senders_) thread.join();
  }

  bool send(int to, const Beat& beat) override {
    const std::lock_guard lock(mutex_);
    if (!due_.empty() && idle_ == 0 && Clock::now() - progress_ > kSlow) senders_.emplace_back([this] { send_all(); });
    Line& l = line(to);
    if (l.pending) return false;
    if (l.lost) return true;
    l.out = beat;
    l.pending = true;
    due_.push_back(to);
    if (senders_.empty()) senders_.emplace_back([this] { send_all(); });
    work_.notify_one();
    return true;
  }

  bool receive(int from, Beat& beat) override {
    const std::lock_guard lock(mutex_);
    Line& l = line(from);
    if (!l.in) return false;
    beat = *l.in;
    l.in.reset();
    return true;
  }

  bool is_lost(int rank) override {
    const std::lock_guard lock(mutex_);
    return line(rank).lost && !line(rank).in;
  }

  bool all_sent() override {
    const std::lock_guard lock(mutex_);
    return no_sends();
  }

  void drain() override {
    std::unique_lock lock(mutex_);
    sent_.wait(lock, [this] { return no_sends(); });
  }

 private:
  struct Line {
    Beat out;
    std::unique_ptr<Buffer> buffer;  // of `out`
    std::optional<Beat> in;          // the last one, if receive() has not returned it
    bool pending = false, lost = false;
  };
  Line& line(int rank) { return lines_[static_cast<size_t>(rank)]; }
  bool no_sends() const {
    for (const Line& l : lines_)
      if (l.pending && !l.lost) return false;
    return true;
  }

  void take(int from, const std::byte* message) {
    const std::lock_guard lock(mutex_);
    std::memcpy(&line(from).in.emplace(), message, sizeof(Beat));
  }

  void note_lost(int rank) {
    const std::lock_guard lock(mutex_);
    line(rank).lost = true;
    sent_.notify_all();
  }

  void send_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      work_.wait(lock, [this] { return stop_ || !due_.empty(); });
      --idle_;
      if (stop_) return;
      const int to = due_.front();
      due_.pop_front();
      progress_ = Clock::now();
      lock.unlock();
      const bool sent = send_one(to);
      lock.lock();
      line(to).pending = false;
      line(to).lost |= !sent;
      progress_ = Clock::now();
      sent_.notify_all();
    }
  }

  bool send_one(int to) {
    try {
      line(to).buffer->send(to, kSlot, 0, sizeof(Beat));
      return line(to).buffer->waitSend(kForever);
    } catch (const std::exception&) {
      return false;
    }
  }

  std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::condition_variable work_, sent_;
  std::vector<Line> lines_;
  std::deque<int> due_;
  int idle_ = 0;  // senders that wait for work
  Clock::time_point progress_ = Clock::now();
  bool stop_ = false;
  std::vector<std::thread> senders_;
  // One for each rank, because a rank that is stopped while it sends blocks its inbox. They use the members above.
  std::vector<std::unique_ptr<Inbox>> inboxes_;
};

}  // namespace

std::unique_ptr<lmx::processes::BeatLink> make_beats(std::shared_ptr<gloo::Context> context) {
  return std::make_unique<GlooBeats>(std::move(context));
}

namespace {

using lmx::Tensor;

template <class T>
void add(void* sum, const void* a, const void* b, size_t n) {
  auto* s = static_cast<T*>(sum);
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) s[i] = x[i] + y[i];
}

class GlooLink final : public lmx::processes::Link {
 public:
  GlooLink(std::shared_ptr<gloo::Context> context, std::unique_ptr<PeerMemory> memory, Watchdog& watchdog,
           std::function<std::shared_ptr<gloo::Context>()> more)
      : context_(std::move(context)), memory_(std::move(memory)), waits_(watchdog), more_(std::move(more)) {}
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<lmx::processes::Messages> messages(int tag) override {
    return std::make_unique<GlooMessages>(*context_, waits_, *memory_, tag);
  }

  void native_sum(const Tensor& t, Tensor& sum) override {
    if (t.dtype() == lmx::DType::f64) {
      sum_of<double>(t, sum);
    } else {
      sum_of<float>(t, sum);
    }
  }

  std::vector<std::unique_ptr<lmx::Connection>> connections(int n) override {
    std::shared_ptr<gloo::Context> own;
    waits_.call(-1, [&] { own = more_(); });
    return make_connections(n, std::move(own), waits_);
  }

 private:
  template <class T>
  void sum_of(const Tensor& t, Tensor& sum) {
    const auto count = static_cast<size_t>(t.numel());
    gloo::AllreduceOptions options(context_);
    options.setInput(const_cast<T*>(t.data<T>()), count);  // Gloo only reads it
    options.setOutput(sum.data<T>(), count);
    options.setReduceFunction(add<T>);
    options.setTimeout(kForever);
    waits_.call(-1, [&] { gloo::allreduce(options); });
  }

  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<PeerMemory> memory_;
  Waits waits_;
  std::function<std::shared_ptr<gloo::Context>()> more_;
};

}  // namespace

std::unique_ptr<lmx::processes::Link> make_link(std::shared_ptr<gloo::Context> context,
                                                std::unique_ptr<PeerMemory> memory, Watchdog& watchdog,
                                                std::function<std::shared_ptr<gloo::Context>()> more) {
  return std::make_unique<GlooLink>(std::move(context), std::move(memory), watchdog, std::move(more));
}

}  // namespace lmx_gloo
