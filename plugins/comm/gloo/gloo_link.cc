#include "gloo_link.h"

#include <gloo/allreduce.h>

#include <cstddef>
#include <utility>

#include "connection.h"
#include "messages.h"
#include "waits.h"

namespace lmx_gloo {
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
