// Jobs of a UnitQueue on a CUDA device: the exchange stream beside that of the thread that computes. An emulated device
// runs work late, so each missing wait gives wrong data in every run.
#include <future>

#include "autograd/gradient_sums.h"
#include "device.h"
#include "lmx/error.h"
#include "sync/unit_queue.h"
#include "test.h"

namespace lmx::app {
namespace {

using testing::Each;

constexpr int64_t kSize = 1000;

class DeviceOverlap : public lmx_test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    ctx_ = lmx_test::context_on(Device::Kind::cuda);
    queue_ = std::make_unique<UnitQueue>(true, ctx_.device);
    queue_->begin_step();
  }
  // The context of a job.
  Context of_job() const {
    Context ctx = ctx_;
    use_stream_of_thread(ctx);
    return ctx;
  }
  static Tensor filled(Context ctx, double value) {
    Tensor t = ctx.empty({kSize});
    fill(ctx, t, value);
    return t;
  }
  // A copy of `t` by work of the calling thread's stream.
  static Tensor copied(const Context& ctx, const Tensor& t) {
    Tensor copy = ctx.empty({kSize});
    copy.copy_from(t);
    return copy;
  }
  void post(std::function<void()> job, const std::vector<Tensor>& used = {}) {
    queue_->post(queue_->now(), std::move(job), used);
  }
  // The same, and returns when the job is enqueued.
  void post_and_wait(const std::function<void()>& job, const std::vector<Tensor>& used = {}) {
    std::promise<void> enqueued;
    post(
        [&] {
          job();
          enqueued.set_value();
        },
        used);
    enqueued.get_future().wait();
  }
  std::vector<double> values(const Tensor& t) const { return lmx_test::values_of(ctx_, t); }

  Context ctx_;
  std::unique_ptr<UnitQueue> queue_;
};

TEST_F(DeviceOverlap, AJobWaitsForItsUnit) {
  const Tensor gradient = filled(ctx_, 3);
  std::vector<double> seen;
  post([&] { seen = lmx_test::values_of(of_job(), gradient); });  // the host waits for the exchange stream alone
  queue_->drain();
  EXPECT_THAT(seen, Each(3));
}

TEST_F(DeviceOverlap, LaterWorkOfOpsWaitsForTheJobs) {
  Tensor sum;
  const Tensor gradient = filled(ctx_, 3);
  post([&] { sum = copied(of_job(), gradient); });
  queue_->drain();
  EXPECT_THAT(values(sum), Each(3));
}

// Backward takes memory for the next gradient before the device has exchanged this one.
TEST_F(DeviceOverlap, MemoryThatAJobFreesIsNotUsedBeforeTheJobHasRun) {
  Tensor gradient = filled(ctx_, 3), sum;
  post_and_wait([&] { sum = copied(of_job(), std::exchange(gradient, {})); });
  const Tensor next = filled(ctx_, 7);
  queue_->drain();
  EXPECT_THAT(values(sum), Each(3));
  EXPECT_THAT(values(next), Each(7));
}

TEST_F(DeviceOverlap, MemoryThatAJobUsesIsNotUsedBeforeTheJobHasRun) {
  Tensor gradient = filled(ctx_, 3), sum;
  post_and_wait([&] { sum = copied(of_job(), gradient); }, {gradient.slice(1, 2)});
  gradient = {};  // the last reference
  const Tensor next = filled(ctx_, 7);
  queue_->drain();
  EXPECT_THAT(values(sum), Each(3));
  EXPECT_THAT(values(next), Each(7));
}

// The update of parameters reads the sums, and frees them; the next exchange takes their memory.
TEST_F(DeviceOverlap, MemoryOfJobsIsNotUsedBeforeOpsHaveReadIt) {
  Tensor sum;
  post([&] { sum = filled(of_job(), 5); });
  queue_->drain();
  const auto ready = queue_->now();
  const Tensor read = copied(ctx_, std::exchange(sum, {}));
  queue_->post(ready, [&] {
    const Context ctx = of_job();
    EXPECT_THAT(lmx_test::values_of(ctx, filled(ctx, 9)), Each(9));
  });
  queue_->drain();
  EXPECT_THAT(values(read), Each(5));
}

TEST_F(DeviceOverlap, StepsNeedNoNewMemory) {
  std::vector<int64_t> reserved;
  for (int step = 0; step < 6; ++step) {
    queue_->begin_step();
    std::vector<Tensor> sums(4);
    for (Tensor& sum : sums) {
      Tensor gradient = filled(ctx_, step);
      post([this, &sum, gradient]() mutable { sum = copied(of_job(), std::exchange(gradient, {})); }, {gradient});
    }
    queue_->drain();
    for (const Tensor& sum : sums) EXPECT_THAT(values(sum), Each(step));
    reserved.push_back(cuda_device(0).memory()->stats().reserved);
  }
  EXPECT_THAT(std::vector(reserved.begin() + 1, reserved.end()), Each(reserved.back()));
}

TEST_F(DeviceOverlap, EqualArraysOfTwoStreamsAreTwo) {
  const Uploaded<int32_t> own = ctx_.upload(std::vector<int32_t>{3, 1, 2});
  const void* of_exchange = nullptr;
  post([&] { of_exchange = of_job().upload(std::vector<int32_t>{3, 1, 2}).data(); });
  queue_->drain();
  EXPECT_NE(of_exchange, nullptr);
  EXPECT_NE(of_exchange, own.data());
}

TEST_F(DeviceOverlap, AContextOfAnotherThreadIsRefused) {
  Tensor gradient = ctx_.empty({kSize});
  post([&] { fill(ctx_, gradient, 1); });
  EXPECT_THROW(queue_->drain(), InternalError);
}

TEST_F(DeviceOverlap, TimesAreThoseOfTheDevice) {
  const Tensor gradient = filled(ctx_, 3);
  Tensor first, second;
  post([&] { first = copied(of_job(), gradient); });
  const Tensor beside = filled(ctx_, 4);
  post([&] { second = copied(of_job(), gradient); });
  queue_->drain();
  values(second);  // the host waits
  const std::vector<UnitQueue::JobTime> times = queue_->job_times();
  ASSERT_EQ(times.size(), 2);
  double busy = 0;
  for (const auto& [ready, begin, end] : times) {
    EXPECT_LE(0, ready);
    EXPECT_LE(ready, begin);
    EXPECT_LT(begin, end);
    busy += end - begin;
  }
  EXPECT_LE(times[0].end, times[1].begin);
  EXPECT_LT(times[0].ready, times[1].ready);
  const CommTimes all = queue_->take_times();
  EXPECT_NEAR(all.busy, busy, 1e-6);
  EXPECT_GE(all.exposed, 0);
  EXPECT_LE(all.exposed, times[1].end);
  EXPECT_EQ(queue_->take_times().busy, 0);
}

}  // namespace
}  // namespace lmx::app
