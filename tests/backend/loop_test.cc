// Loops that are replayed as graphs (replay_steps()).
#include <cstring>
#include <thread>

#include "autograd/gradient_sums.h"
#include "backend/loop_work.h"
#include "device.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "test.h"

namespace lmx {
namespace {

using lmx_test::context_on;

class CudaLoop : public lmx_test::DeviceTest {
 protected:
  // sum = 0, then ten times sum += x; enqueued by kernels, a fill and a copy.
  static void add_ten_times(Context& ctx, Tensor& sum, const Tensor& x, const Tensor& scratch) {
    replay_steps(ctx, [&](Context& loop) {
      Tensor to = sum, work = scratch;
      work.zero();
      to.copy_from(scratch);
      for (int i = 0; i < 10; ++i) add_tensor(loop, to, x);
    });
  }
  static std::vector<float> host(const Context& ctx, const Tensor& t) {
    const auto read = ctx.read<float>(t);
    return {read.get().begin(), read.get().end()};
  }
  static Tensor filled(Context& ctx, float value) {
    return ctx.upload(Tensor::from<float>(ctx.host, {3}, std::vector<float>{value, value + 1, value + 2}));
  }
  static int64_t graphs() {
    const auto launches = cuda_device(0).counts().launches;
    const auto found = launches.find("graph");
    return found == launches.end() ? 0 : found->second;
  }
};

TEST_F(CudaLoop, IsReplayedFromTheSecondTimeOn) {
  Context ctx = context_on(Device::Kind::cuda);
  Tensor x = filled(ctx, 1), sum = ctx.zeros({3}), scratch = ctx.empty({3});
  const int64_t before = graphs();
  for (int run = 1; run <= 4; ++run) {
    sum.copy_from(x);  // the loop must begin with zeros again
    add_ten_times(ctx, sum, x, scratch);
    EXPECT_EQ(host(ctx, sum), (std::vector<float>{10, 20, 30})) << "run " << run;
    EXPECT_EQ(graphs() - before, run - 1);
  }
  x.copy_from(filled(ctx, 5));  // a graph reads the values that its memory has when it runs
  add_ten_times(ctx, sum, x, scratch);
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{50, 60, 70}));
}

TEST_F(CudaLoop, OfOtherTensorsIsAnotherGraph) {
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1), y = filled(ctx, 2), scratch = ctx.empty({3});
  Tensor sum = ctx.zeros({3}), other = ctx.zeros({3});
  for (int run = 0; run < 3; ++run) {
    add_ten_times(ctx, sum, x, scratch);
    add_ten_times(ctx, other, y, scratch);
    add_ten_times(ctx, sum, y, scratch);
  }
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{20, 30, 40}));
  EXPECT_EQ(host(ctx, other), (std::vector<float>{20, 30, 40}));
}

// Ranks that share the device enqueue while one of them captures: their work must not become part of its graph.
TEST_F(CudaLoop, OfSeveralThreadsAreSeparate) {
  constexpr int kThreads = 4;
  std::vector<std::vector<float>> got(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Context ctx = context_on(Device::Kind::cuda);
      const Tensor x = filled(ctx, static_cast<float>(t)), scratch = ctx.empty({3});
      Tensor sum = ctx.zeros({3}), all = ctx.zeros({3});
      for (int run = 0; run < 6; ++run) {
        add_ten_times(ctx, sum, x, scratch);
        add_tensor(ctx, all, sum);
      }
      got[static_cast<size_t>(t)] = host(ctx, all);
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    const auto v = static_cast<float>(60 * t);
    EXPECT_EQ(got[static_cast<size_t>(t)], (std::vector<float>{v, v + 60, v + 120}));
  }
}

TEST_F(CudaLoop, MustNotAllocateOrTransfer) {
  Context ctx = context_on(Device::Kind::cuda);
  Tensor x = filled(ctx, 1);
  EXPECT_THROW(replay_steps(ctx, [](Context& loop) { static_cast<void>(loop.empty({3})); }), InternalError);
  EXPECT_THROW(replay_steps(ctx, [&](Context& loop) { static_cast<void>(loop.read<float>(x)); }), InternalError);
  EXPECT_THROW(replay_steps(ctx, [&](Context& loop) { replay_steps(loop, [](Context&) {}); }), InternalError);
  EXPECT_EQ(host(ctx, x), (std::vector<float>{1, 2, 3}));  // the device works on
}

// With the outer context the first run would be right, and a replay would not do the work.
TEST_F(CudaLoop, MustUseTheContextThatItGets) {
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1);
  Tensor sum = ctx.zeros({3});
  const auto run = [&] {
    replay_steps(ctx, [&](Context&) {
      for (int i = 0; i < 10; ++i) add_tensor(ctx, sum, x);
    });
  };
  run();
  EXPECT_THROW(run(), InternalError);
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{10, 20, 30}));  // the device works on
}

TEST_F(CudaLoop, OfMoreWorkThanGraphsMayHaveRunsDirectly) {
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1);
  Tensor sum = ctx.zeros({3}), work = ctx.zeros({1});
  const int64_t before = graphs();
  for (int run = 0; run < 3; ++run)
    replay_steps(ctx, [&](Context& loop) {
      for (int i = 0; i < (1 << 17); ++i) work.zero();
      add_tensor(loop, sum, x);
    });
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{3, 6, 9}));
  EXPECT_EQ(graphs(), before);
}

TEST_F(CudaLoop, RunsDirectlyWhileTheDeviceHasNoMemoryForGraphs) {
  if (cuda_device_info(0).memory > int64_t{1} << 30) GTEST_SKIP() << "it fills the device's memory, which is large";
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1), scratch = ctx.empty({3});
  Tensor sum = ctx.zeros({3});
  const int64_t before = graphs();
  {
    std::vector<Tensor> all;
    for (int64_t bytes = int64_t{1} << 30; bytes >= 256; bytes /= 2) try {
        while (true) all.push_back(ctx.empty({bytes}, DType::u8));
      } catch (const RunError&) {  // no memory for a block of this size
      }
    for (int run = 0; run < 4; ++run) add_ten_times(ctx, sum, x, scratch);
    EXPECT_EQ(graphs(), before);
  }
  ctx.allocator->trim();
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{10, 20, 30}));
  for (int run = 0; run < 2; ++run) add_ten_times(ctx, sum, x, scratch);
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{10, 20, 30}));
  EXPECT_GT(graphs(), before);
}

// `fills` fills of `work`, and sum += x.
void fill_and_add(Context& ctx, Tensor& work, int fills, Tensor& sum, const Tensor& x) {
  replay_steps(ctx, [&](Context& loop) {
    for (int i = 0; i < fills; ++i) work.zero();
    add_tensor(loop, sum, x);
  });
}

// The emulated device takes 1 kB for each operation, and gives graphs a sixteenth of its 268 MB.
class CudaGraphMemory : public CudaLoop {
 protected:
  void SetUp() override {
    CudaLoop::SetUp();
    if (!IsSkipped() && cuda_device_info(0).memory > int64_t{1} << 30) GTEST_SKIP() << "the device's memory is large";
  }
  static int64_t taken() { return cuda_device(0).graph_memory().bytes; }
};

TEST_F(CudaGraphMemory, IsCountedAndNamedWhereMemoryIsMissing) {
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1);
  Tensor sum = ctx.zeros({3}), work = ctx.zeros({1});
  const int64_t before = taken();
  for (int run = 0; run < 3; ++run) fill_and_add(ctx, work, 3000, sum, x);
  EXPECT_GT(taken() - before, 3'000'000);
  EXPECT_LT(taken() - before, 3'200'000);
  EXPECT_GE(cuda_device(0).graph_memory().peak, taken());
  EXPECT_THAT(lmx_test::run_error([&] { ctx.empty({int64_t{1} << 40}, DType::u8); }),
              lmx_test::Names("CUDA graphs take "));
}

TEST_F(CudaGraphMemory, IsAtMostASixteenthOfTheDevices) {
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1);
  Tensor sum = ctx.zeros({3});
  std::vector<Tensor> works;  // each gives a separate graph
  const int64_t before = graphs();
  for (int loop = 0; loop < 6; ++loop) {
    works.push_back(ctx.zeros({1}));
    for (int run = 0; run < 2; ++run) fill_and_add(ctx, works.back(), 5000, sum, x);
    EXPECT_LE(taken(), cuda_device_info(0).memory / 16);
  }
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{12, 24, 36}));
  EXPECT_GE(graphs() - before, 4);
}

TEST_F(CudaGraphMemory, OfOneLoopThatIsTooLargeIsReleased) {
  Context ctx = context_on(Device::Kind::cuda);
  const Tensor x = filled(ctx, 1);
  Tensor sum = ctx.zeros({3}), work = ctx.zeros({1});
  const int64_t before = graphs(), memory = taken();
  for (int run = 0; run < 4; ++run) fill_and_add(ctx, work, 20'000, sum, x);
  EXPECT_EQ(host(ctx, sum), (std::vector<float>{4, 8, 12}));
  EXPECT_EQ(graphs(), before);
  EXPECT_LE(taken(), memory);
  EXPECT_GT(cuda_device(0).graph_memory().peak, 20'000'000);
}

TEST(Loop, RunsOnceOnTheCpu) {
  Context ctx;
  int runs = 0;
  replay_steps(ctx, [&](Context& loop) {
    ++runs;
    EXPECT_EQ(&loop, &ctx);
  });
  EXPECT_EQ(runs, 1);
}

template <class T>
struct Padded {
  static constexpr const char* kName = "padded";
  const T* x;
  int64_t n;
  T factor;  // f32: followed by four bytes of padding
};

std::string description(const Padded<float>& args) {
  std::string text;
  LoopWork work{.text = &text};
  const InLoop in_loop(work);
  detail::describe_work(args);
  return text;
}

TEST(Loop, IsDescribedByItsArgumentsAlone) {
  const float x[2]{};
  alignas(Padded<float>) unsigned char memory[2][sizeof(Padded<float>)];
  std::memset(memory[0], 0x11, sizeof memory[0]);
  std::memset(memory[1], 0x77, sizeof memory[1]);
  Padded<float>*a = reinterpret_cast<Padded<float>*>(memory[0]), *b = reinterpret_cast<Padded<float>*>(memory[1]);
  for (Padded<float>* p : {a, b}) p->x = x, p->n = 2, p->factor = 0.5F;
  ASSERT_NE(std::memcmp(memory[0], memory[1], sizeof memory[0]), 0) << "the padding differs";
  EXPECT_EQ(description(*a), description(*b));
  b->factor = 0.25F;
  EXPECT_NE(description(*a), description(*b));
  b->factor = 0.5F, b->n = 3;
  EXPECT_NE(description(*a), description(*b));
  b->n = 2, b->x = x + 1;
  EXPECT_NE(description(*a), description(*b));
}

}  // namespace
}  // namespace lmx
