#include "gloo_link.h"

#include <gloo/allreduce.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "connection.h"
#include "waits.h"

namespace lmx_gloo {
namespace {

using lmx::Tensor;
using lmx::processes::kLongest;

class GlooMessages final : public lmx::processes::Messages {
 public:
  GlooMessages(gloo::Context& context, Waits& waits, int tag)
      : context_(context), waits_(waits), slot_(static_cast<uint64_t>(tag)) {}

  // All pieces are posted at once: those between two ranks follow one another on one connection.
  void post(const Tensor& t, int other, bool in) override {
    const int64_t bytes = t.bytes();
    messages_.push_back({t, buffer_of(context_, t), other, in, 0});
    Message& m = messages_.back();
    waits_.call(other, [&] {
      for (int64_t at = 0; at < bytes || m.pieces == 0; at += kLongest, ++m.pieces) {
        const auto offset = static_cast<size_t>(at), length = static_cast<size_t>(std::min(kLongest, bytes - at));
        if (in) {
          m.buffer->recv(other, slot_, offset, length);
        } else {
          m.buffer->send(other, slot_, offset, length);
        }
      }
    });
  }

  void wait() override { complete(0); }

 private:
  struct Message {
    Tensor tensor;
    std::unique_ptr<Buffer> buffer;
    int other;
    bool in;
    int64_t pieces;  // that are not complete
  };

  size_t posted() const override { return messages_.size(); }
  // Completes the messages to this rank first.
  void complete(size_t begin) override {
    for (const bool in : {true, false})
      for (size_t i = begin; i < messages_.size(); ++i)
        if (messages_[i].in == in) complete(messages_[i]);
  }
  void complete(Message& m) {
    for (; m.pieces > 0; --m.pieces) {
      if (m.in) {
        waits_.until_received(*m.buffer, m.other);
      } else {
        waits_.until_sent(*m.buffer, m.other);
      }
      waits_.watchdog().progress();
    }
  }

  gloo::Context& context_;
  Waits& waits_;
  uint64_t slot_;
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
