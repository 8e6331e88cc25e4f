// Late execution: work for which no code waits has not run, so a missing wait gives wrong data in every run.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "cuda_emulator/kernels_for_tests.h"
#include "cuda_emulator/simt.h"

namespace cuda_emulator {
namespace {

using namespace testing_kernels;

class Streams : public testing::Test {
 protected:
  Streams() {
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc(reinterpret_cast<void**>(&x), sizeof(float));
    cudaHostAlloc(reinterpret_cast<void**>(&host), sizeof(float), cudaHostAllocDefault);
  }
  ~Streams() override {
    cudaFree(x);
    cudaFreeHost(host);
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
  void set(cudaStream_t stream, float value) const {
    cudaLaunchConfig_t config;
    config.stream = stream;
    ASSERT_EQ(cudaLaunchKernelEx(&config, set_one, x, value), cudaSuccess);
  }
  void copy_out(cudaStream_t stream) const {
    ASSERT_EQ(cudaMemcpyAsync(host, x, sizeof(float), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  }
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  float *x = nullptr, *host = nullptr;
};

TEST_F(Streams, NothingRunsBeforeTheHostWaits) {
  set(a, 7);
  copy_out(a);
  EXPECT_TRUE(std::isnan(*host));
  cudaStreamSynchronize(a);
  EXPECT_EQ(*host, 7);
}

TEST_F(Streams, AMissingWaitBetweenStreamsGivesWrongData) {
  set(a, 7);
  copy_out(b);  // should wait for `a`
  cudaStreamSynchronize(b);
  EXPECT_TRUE(std::isnan(*host));
}

TEST_F(Streams, AnEventOrdersTwoStreams) {
  set(a, 7);
  cudaEventRecord(event, a);
  set(a, 8);  // after the event, so `b` need not wait for it
  cudaStreamWaitEvent(b, event, 0);
  copy_out(b);
  cudaStreamSynchronize(b);
  EXPECT_EQ(*host, 7);
  cudaStreamSynchronize(a);
}

TEST_F(Streams, ABufferThatIsReusedTooEarlyGivesWrongData) {
  *host = 1;
  cudaMemcpyAsync(x, host, sizeof(float), cudaMemcpyHostToDevice, a);
  *host = 2;  // the copy has not read the buffer yet
  cudaStreamSynchronize(a);
  copy_out(a);
  cudaStreamSynchronize(a);
  EXPECT_EQ(*host, 2);
}

TEST_F(Streams, PageableMemoryIsReadAtOnce) {
  float value = 1;
  cudaMemcpyAsync(x, &value, sizeof(float), cudaMemcpyHostToDevice, a);
  value = 2;
  copy_out(a);
  cudaStreamSynchronize(a);
  EXPECT_EQ(*host, 1);
}

TEST_F(Streams, AQuestionIsAnsweredByNotReadyOnce) {
  set(a, 7);
  cudaEventRecord(event, a);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  copy_out(a);
  cudaEventRecord(event, a);
  EXPECT_TRUE(std::isnan(*host));
  cudaEventSynchronize(event);
  EXPECT_EQ(*host, 7);
}

TEST_F(Streams, MemoryThatIsReleasedInAStreamIsValidUntilThen) {
  float* block = nullptr;
  cudaMallocAsync(reinterpret_cast<void**>(&block), sizeof(float), a);
  cudaLaunchConfig_t config;
  config.stream = a;
  cudaLaunchKernelEx(&config, set_one, block, 5.0f);
  cudaMemcpyAsync(host, block, sizeof(float), cudaMemcpyDeviceToHost, a);
  cudaFreeAsync(block, a);
  cudaStreamSynchronize(a);
  EXPECT_EQ(*host, 5);
}

TEST_F(Streams, AGraphRepeatsWhatWasCaptured) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  set(a, 7);
  copy_out(a);
  ASSERT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  cudaStreamSynchronize(a);
  EXPECT_TRUE(std::isnan(*host));  // captured work does not run
  for (int i = 0; i < 2; ++i) {
    *host = 0;
    ASSERT_EQ(cudaGraphLaunch(executable, a), cudaSuccess);
    cudaStreamSynchronize(a);
    EXPECT_EQ(*host, 7);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// A capture of one thread does not restrict the others, unless its mode is global.
TEST_F(Streams, ACaptureConcernsItsThread) {
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    const bool global = mode == cudaStreamCaptureModeGlobal;
    cudaEventRecord(event, b);
    ASSERT_EQ(cudaStreamBeginCapture(a, mode), cudaSuccess);
    std::thread([&] {
      EXPECT_EQ(cudaEventQuery(event), global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
      cudaGraph_t graph = nullptr;
      EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureWrongThread);
    }).join();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    cudaGraphDestroy(graph);
  }
  (void)cudaGetLastError();
}

TEST_F(Streams, AnAllocationInACaptureMakesItInvalid) {
  ASSERT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaSuccess);
  void* block = nullptr;
  EXPECT_EQ(cudaMalloc(&block, 64), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace cuda_emulator
