#include "gloo_link.h"

#include <gloo/allreduce.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include "connection.h"
#include "lengths.h"
#include "waits.h"

namespace lmx_gloo {
namespace {

using lmx::Tensor;
using lmx::processes::kLongest;

// The first message between two ranks for a tensor: its length in bytes and, if it is short, its data.
class Head {
 public:
  // Bytes of the longest tensor that its head contains.
  static constexpr int64_t kShort = 1024;

  Head(gloo::Context& context, const Tensor& t, bool in)
      : bytes_(new std::byte[size_of(in ? kShort : t.bytes())]), capacity_(size_of(in ? kShort : t.bytes())) {
    if (!in) {
      const int64_t length = t.bytes();
      std::memcpy(bytes_.get(), &length, sizeof length);
      if (length <= kShort && length > 0)
        std::memcpy(bytes_.get() + sizeof length, t.raw(), static_cast<size_t>(length));
    }
    buffer_ = context.createUnboundBuffer(bytes_.get(), capacity_);
  }
  void send(int to, int tag) { buffer_->send(to, slot_of(tag, 0), 0, capacity_); }
  void receive(int from, int tag) { buffer_->recv(from, slot_of(tag, 0), 0, capacity_); }
  Buffer& buffer() { return *buffer_; }

  int64_t length() const {
    int64_t length = 0;
    std::memcpy(&length, bytes_.get(), sizeof length);
    return length;
  }
  void copy_to(Tensor& t) const {
    if (t.bytes() > 0) std::memcpy(t.raw(), bytes_.get() + sizeof(int64_t), static_cast<size_t>(t.bytes()));
  }

 private:
  static size_t size_of(int64_t length) { return sizeof(int64_t) + static_cast<size_t>(length <= kShort ? length : 0); }

  std::unique_ptr<std::byte[]> bytes_;
  size_t capacity_;  // of the head that is sent; the longest one that may be received
  std::unique_ptr<Buffer> buffer_;
};

class GlooMessages final : public lmx::processes::Messages {
 public:
  GlooMessages(gloo::Context& context, Waits& waits, int tag) : context_(context), waits_(waits), tag_(tag) {}

  // All pieces are posted at once: those between two ranks follow one another on one connection.
  void post(const Tensor& t, int other, bool in) override {
    messages_.push_back({t, Head(context_, t, in), nullptr, other, in});
    Message& m = messages_.back();
    waits_.call(other, [&] {
      in ? m.head.receive(other, tag_) : m.head.send(other, tag_);
      if (t.bytes() > Head::kShort) post_pieces(m);
    });
  }

  void wait() override { complete(0); }

 private:
  struct Message {
    Tensor tensor;
    Head head;
    std::unique_ptr<Buffer> buffer;  // of the pieces; null for a short tensor
    int other;
    bool in;
    int64_t pieces = 0;  // that are not complete
    bool complete = false;
  };

  void post_pieces(Message& m) {
    m.buffer = buffer_of(context_, m.tensor);
    for (int64_t at = 0; at < m.tensor.bytes(); at += kLongest, ++m.pieces) {
      const int64_t bytes = std::min(kLongest, m.tensor.bytes() - at);
      const auto offset = static_cast<size_t>(at), length = static_cast<size_t>(bytes);
      if (m.in) {
        m.buffer->recv(m.other, slot_of(tag_, bytes), offset, length);
      } else {
        m.buffer->send(m.other, slot_of(tag_, bytes), offset, length);
      }
    }
  }

  size_t posted() const override { return messages_.size(); }
  // Completes the messages to this rank first.
  void complete(size_t begin) override {
    for (const bool in : {true, false})
      for (size_t i = begin; i < messages_.size(); ++i)
        if (messages_[i].in == in && !messages_[i].complete) complete(messages_[i]);
  }
  void complete(Message& m) {
    complete(m, m.head.buffer());
    if (m.in) {
      check_length(m.other, m.head.length(), context_.rank, m.tensor.bytes());
      if (!m.buffer) m.head.copy_to(m.tensor);
    }
    for (; m.pieces > 0; --m.pieces) complete(m, *m.buffer);
    m.complete = true;
  }
  void complete(const Message& m, Buffer& buffer) {
    if (m.in) {
      waits_.until_received(buffer, m.other);
    } else {
      waits_.until_sent(buffer, m.other);
    }
    waits_.watchdog().progress();
  }

  gloo::Context& context_;
  Waits& waits_;
  int tag_;
  std::deque<Message> messages_;
};

template <class T>
void add(void* sum, const void* a, const void* b, size_t n) {
  auto* s = static_cast<T*>(sum);
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) s[i] = x[i] + y[i];
}

class GlooLink final : public lmx::processes::Link {
 public:
  GlooLink(std::shared_ptr<gloo::Context> context, Watchdog& watchdog,
           std::function<std::shared_ptr<gloo::Context>()> more)
      : context_(std::move(context)), waits_(watchdog), more_(std::move(more)) {}
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<lmx::processes::Messages> messages(int tag) override {
    return std::make_unique<GlooMessages>(*context_, waits_, tag);
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
  Waits waits_;
  std::function<std::shared_ptr<gloo::Context>()> more_;
};

}  // namespace

std::unique_ptr<lmx::processes::Link> make_link(std::shared_ptr<gloo::Context> context, Watchdog& watchdog,
                                                std::function<std::shared_ptr<gloo::Context>()> more) {
  return std::make_unique<GlooLink>(std::move(context), watchdog, std::move(more));
}

}  // namespace lmx_gloo
