// The graphs of attention, given to the real cuDNN on a machine without a GPU: cuDNN's heuristic chooses engines for
// the properties of a device that the test describes, and each engine is checked for the shape. No kernel is loaded or
// run.
//
// cudnn-frontend asks the CUDA runtime for the current device, so this program defines those functions, and cuDNN needs
// a driver library, for which the CUDA Toolkit has a stub.
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>

#include "backend/cudnn/sdpa_graph.h"
#include "lmx/error.h"

namespace {

struct DeviceKind {
  const char* name;
  int major, processors, shared_bytes;
};
constexpr DeviceKind kA100{"NVIDIA A100-SXM4-80GB", 8, 108, 166912};
constexpr DeviceKind kH100{"NVIDIA H100 80GB HBM3", 9, 132, 232448};
constexpr DeviceKind kB200{"NVIDIA B200", 10, 148, 232448};
DeviceKind current = kH100;

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->major = current.major;
  properties->multiProcessorCount = current.processors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor   ? current.major
           : attribute == cudaDevAttrComputeCapabilityMinor ? 0
                                                            : current.processors;
  return cudaSuccess;
}

}  // extern "C"

namespace lmx::cudnn {
namespace {

using ::testing::HasSubstr;

// cuDNN's record of a device of this kind (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
std::string json_of(const DeviceKind& d) {
  return str(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, )",
      R"("warpSize": 32, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, )",
      R"("maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, )",
      R"("pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, )",
      R"("memClockRateKHz": 2619000, "l2CacheSize": 52428800, "totalGlobalMem": 85000000000, "cudaDeviceId": 0, )",
      R"("driverVer": 13000, "multiProcessorCount": )", d.processors, R"(, "maxSharedMemoryPerBlockOptin": )",
      d.shared_bytes, R"(, "deviceVer": )", 100 * d.major, R"(, "deviceName": ")", d.name, "\"}");
}

class CudnnGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) && !dlopen(LMX_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL))
      GTEST_SKIP() << "neither a driver nor the toolkit's stub of it: " << dlerror();
  }
  // Why cuDNN refuses a graph on that kind of device; "" if it accepts it.
  static std::string refusal(const DeviceKind& kind, std::unique_ptr<Graph> graph) {
    current = kind;
    const std::string json = json_of(kind);
    const auto properties = std::make_shared<fe::DeviceProperties>();
    const fe::error_t read = properties->deserialize({json.begin(), json.end()});
    if (read.is_bad()) return "the properties of the device: " + fe::error_t(read).get_message();
    graph->set_device_properties(properties);
    return refusal_of(*graph, nullptr);
  }
};

// A batch of at most 4 sequences of at most 640 rows, whose q, k and v are columns of one matrix.
SdpaShape shape_of(DType type, int64_t size, int64_t kv_heads, bool causal) {
  const int64_t heads = 8, stride = (heads + 2 * kv_heads) * size;
  return {type, 4, heads, kv_heads, size, 640, 640, stride, stride, stride, causal};
}

std::vector<SdpaShape> shapes() {
  std::vector<SdpaShape> all;
  for (const DType type : {DType::bf16, DType::f16})
    for (const int64_t size : {8, 40, 64, 128})
      for (const int64_t kv_heads : {8, 2})
        for (const bool causal : {false, true}) all.push_back(shape_of(type, size, kv_heads, causal));
  SdpaShape across = shape_of(DType::bf16, 64, 8, false);  // few queries, in a separate matrix
  across.queries = 128;
  across.q_stride = 8 * 64;
  across.k_stride = across.v_stride = 16 * 64;
  all.push_back(across);
  return all;
}

TEST_F(CudnnGraph, HopperAndBlackwellComputeEveryShape) {
  for (const DeviceKind& kind : {kH100, kB200}) {
    for (const SdpaShape& s : shapes()) {
      SCOPED_TRACE(str(kind.name, ' ', name_of(s.type), " size ", s.size, " kv_heads ", s.kv_heads, " queries ",
                       s.queries, s.causal ? " causal" : ""));
      EXPECT_EQ(refusal(kind, forward_graph(s)), "");
      EXPECT_EQ(refusal(kind, backward_graph(s)), "");
    }
  }
}

// A gradient of ragged sequences whose sums have a fixed order does not exist there, so lmx's own kernels are used.
TEST_F(CudnnGraph, AmpereIsRefused) {
  const SdpaShape s = shape_of(DType::bf16, 64, 8, true);
  EXPECT_THAT(refusal(kA100, backward_graph(s)), HasSubstr("Deterministic"));
}

TEST_F(CudnnGraph, AHeadOfAnotherSizeIsRefused) {
  SdpaShape s = shape_of(DType::bf16, 64, 8, true);
  s.size = 60;
  EXPECT_THAT(refusal(kH100, forward_graph(s)), HasSubstr("multiple of 8"));
}

TEST(Cudnn, TheLibraryIsOfTheHeadersVersion) {
  EXPECT_EQ(cudnnGetVersion() / 10000, size_t{CUDNN_MAJOR});
  EXPECT_GE(cudnnGetVersion(), size_t{91900}) << "older versions refuse some shapes";
}

}  // namespace
}  // namespace lmx::cudnn
