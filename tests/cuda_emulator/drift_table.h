// The names of CUDA that the emulator declares, with their values, the sizes of structs and the parameters of
// functions. The file that includes this one has included either the emulator's headers or NVIDIA's.
#pragma once

#include <cstddef>

#include "drift_text.h"

namespace cuda_drift {

namespace {  // a table for each file

// clang-format off
#define LMX_VALUE(name) value(#name, name);
#define LMX_SIZE(type) value("sizeof " #type, sizeof(type));
#define LMX_FUNCTION(name) t[#name] = Parameters<decltype(&name)>::text();
void add_cudnn(Table& t) {
#if LMX_CUDNN_HEADERS
  const auto value = [&](const char* name, auto v) { t[name] = std::to_string(static_cast<long long>(v)); };
  LMX_VALUE(CUDNN_STATUS_SUCCESS) LMX_VALUE(CUDNN_STATUS_NOT_INITIALIZED) LMX_VALUE(CUDNN_STATUS_BAD_PARAM)
  LMX_VALUE(CUDNN_STATUS_NOT_SUPPORTED) LMX_FUNCTION(cudnnGetVersion) LMX_FUNCTION(cudnnGetErrorString)
  LMX_FUNCTION(cudnnCreate) LMX_FUNCTION(cudnnSetStream)
#else
  (void)t;
#endif
}

[[maybe_unused]] Table table() {
  Table t;
  const auto value = [&](const char* name, auto v) { t[name] = std::to_string(static_cast<long long>(v)); };
  LMX_VALUE(cudaSuccess) LMX_VALUE(cudaErrorInvalidValue) LMX_VALUE(cudaErrorMemoryAllocation)
  LMX_VALUE(cudaErrorInvalidConfiguration) LMX_VALUE(cudaErrorInsufficientDriver)
  LMX_VALUE(cudaErrorInvalidDeviceFunction) LMX_VALUE(cudaErrorNoDevice) LMX_VALUE(cudaErrorInvalidDevice)
  LMX_VALUE(cudaErrorNoKernelImageForDevice) LMX_VALUE(cudaErrorECCUncorrectable)
  LMX_VALUE(cudaErrorInvalidResourceHandle) LMX_VALUE(cudaErrorNotReady) LMX_VALUE(cudaErrorIllegalAddress)
  LMX_VALUE(cudaErrorLaunchTimeout) LMX_VALUE(cudaErrorHardwareStackError) LMX_VALUE(cudaErrorIllegalInstruction)
  LMX_VALUE(cudaErrorMisalignedAddress) LMX_VALUE(cudaErrorInvalidPc) LMX_VALUE(cudaErrorLaunchFailure)
  LMX_VALUE(cudaErrorNotSupported) LMX_VALUE(cudaErrorStreamCaptureUnsupported)
  LMX_VALUE(cudaErrorStreamCaptureInvalidated) LMX_VALUE(cudaErrorStreamCaptureWrongThread)
  LMX_VALUE(cudaErrorUnknown) LMX_VALUE(cudaMemcpyHostToHost) LMX_VALUE(cudaMemcpyHostToDevice)
  LMX_VALUE(cudaMemcpyDeviceToHost) LMX_VALUE(cudaMemcpyDeviceToDevice) LMX_VALUE(cudaMemcpyDefault)
  LMX_VALUE(cudaFuncAttributeMaxDynamicSharedMemorySize) LMX_VALUE(cudaStreamCaptureModeGlobal)
  LMX_VALUE(cudaStreamCaptureModeThreadLocal) LMX_VALUE(cudaStreamCaptureModeRelaxed)
  LMX_VALUE(cudaStreamCaptureStatusNone) LMX_VALUE(cudaStreamCaptureStatusActive)
  LMX_VALUE(cudaStreamCaptureStatusInvalidated) LMX_VALUE(cudaDevAttrComputeCapabilityMajor)
  LMX_VALUE(cudaDevAttrComputeCapabilityMinor) LMX_VALUE(cudaDevAttrMultiProcessorCount)
  LMX_VALUE(cudaDevAttrMaxSharedMemoryPerBlockOptin) LMX_VALUE(cudaMemPoolAttrReleaseThreshold)
  LMX_VALUE(CUBLAS_STATUS_SUCCESS) LMX_VALUE(CUBLAS_STATUS_NOT_INITIALIZED) LMX_VALUE(CUBLAS_STATUS_ALLOC_FAILED)
  LMX_VALUE(CUBLAS_STATUS_INVALID_VALUE) LMX_VALUE(CUBLAS_STATUS_NOT_SUPPORTED) LMX_VALUE(CUDA_R_32F)
  LMX_VALUE(CUDA_R_64F) LMX_VALUE(CUDA_R_16F) LMX_VALUE(CUDA_R_16BF) LMX_VALUE(CUBLAS_OP_N) LMX_VALUE(CUBLAS_OP_T)
  LMX_VALUE(CUBLAS_COMPUTE_32F) LMX_VALUE(CUBLAS_COMPUTE_64F) LMX_VALUE(CUBLAS_COMPUTE_32F_FAST_TF32)
  LMX_VALUE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) LMX_VALUE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
  LMX_VALUE(CUBLASLT_MATMUL_DESC_TRANSA) LMX_VALUE(CUBLASLT_MATMUL_DESC_TRANSB)
  LMX_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE) LMX_VALUE(CUBLASLT_MATMUL_DESC_BIAS_POINTER)
  LMX_VALUE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) LMX_VALUE(CUBLASLT_EPILOGUE_DEFAULT)
  LMX_VALUE(CUBLASLT_EPILOGUE_RELU) LMX_VALUE(CUBLASLT_EPILOGUE_BIAS) LMX_VALUE(CUBLASLT_EPILOGUE_RELU_BIAS)
  LMX_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) LMX_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
  LMX_VALUE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) LMX_VALUE(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
  LMX_VALUE(CUBLASLT_REDUCTION_SCHEME_MASK)
  LMX_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) LMX_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
  LMX_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) LMX_VALUE(cudaStreamNonBlocking) LMX_VALUE(cudaEventDefault)
  LMX_VALUE(cudaEventDisableTiming) LMX_VALUE(cudaHostAllocDefault)
  LMX_VALUE(cudaLaunchAttributeProgrammaticStreamSerialization)
  LMX_SIZE(cublasLtMatrixLayoutOpaque_t) LMX_SIZE(cublasLtMatmulAlgo_t) LMX_SIZE(cublasLtMatmulDescOpaque_t)
  LMX_SIZE(cublasLtMatmulPreferenceOpaque_t) LMX_SIZE(cublasLtMatmulHeuristicResult_t)
  LMX_FUNCTION(cudaGetErrorName) LMX_FUNCTION(cudaGetErrorString) LMX_FUNCTION(cudaGetLastError)
  LMX_FUNCTION(cudaPeekAtLastError) LMX_FUNCTION(cudaGetDeviceCount) LMX_FUNCTION(cudaGetDevice)
  LMX_FUNCTION(cudaSetDevice) LMX_FUNCTION(cudaGetDeviceProperties) LMX_FUNCTION(cudaDeviceGetAttribute)
  LMX_FUNCTION(cudaDeviceSynchronize) LMX_FUNCTION(cudaRuntimeGetVersion) LMX_FUNCTION(cudaDriverGetVersion)
  LMX_FUNCTION(cudaMalloc) LMX_FUNCTION(cudaFree) LMX_FUNCTION(cudaMallocAsync) LMX_FUNCTION(cudaFreeAsync)
  LMX_FUNCTION(cudaDeviceGetDefaultMemPool) LMX_FUNCTION(cudaMemPoolTrimTo) LMX_FUNCTION(cudaMemPoolSetAttribute)
  LMX_FUNCTION(cudaHostAlloc) LMX_FUNCTION(cudaFreeHost) LMX_FUNCTION(cudaMemGetInfo) LMX_FUNCTION(cudaMemcpy)
  LMX_FUNCTION(cudaMemcpyAsync) LMX_FUNCTION(cudaMemset) LMX_FUNCTION(cudaMemsetAsync)
  LMX_FUNCTION(cudaStreamCreateWithFlags) LMX_FUNCTION(cudaStreamDestroy) LMX_FUNCTION(cudaStreamSynchronize)
  LMX_FUNCTION(cudaStreamWaitEvent) LMX_FUNCTION(cudaEventCreateWithFlags) LMX_FUNCTION(cudaEventDestroy)
  LMX_FUNCTION(cudaEventRecord) LMX_FUNCTION(cudaEventQuery) LMX_FUNCTION(cudaEventSynchronize)
  LMX_FUNCTION(cudaEventElapsedTime) LMX_FUNCTION(cudaStreamBeginCapture) LMX_FUNCTION(cudaStreamEndCapture)
  LMX_FUNCTION(cudaStreamIsCapturing) LMX_FUNCTION(cudaGraphInstantiate) LMX_FUNCTION(cudaGraphUpload)
  LMX_FUNCTION(cudaGraphLaunch) LMX_FUNCTION(cudaGraphDestroy) LMX_FUNCTION(cudaGraphExecDestroy)
  LMX_FUNCTION(cublasLtGetStatusName) LMX_FUNCTION(cublasLtGetVersion) LMX_FUNCTION(cublasLtCreate) LMX_FUNCTION(cublasLtDestroy)
  LMX_FUNCTION(cublasLtMatrixLayoutCreate)
  LMX_FUNCTION(cublasLtMatrixLayoutDestroy) LMX_FUNCTION(cublasLtMatrixLayoutSetAttribute)
  LMX_FUNCTION(cublasLtMatmulDescCreate) LMX_FUNCTION(cublasLtMatmulDescDestroy)
  LMX_FUNCTION(cublasLtMatmulDescSetAttribute) LMX_FUNCTION(cublasLtMatmulPreferenceCreate)
  LMX_FUNCTION(cublasLtMatmulPreferenceDestroy) LMX_FUNCTION(cublasLtMatmulPreferenceSetAttribute)
  LMX_FUNCTION(cublasLtMatmulAlgoGetHeuristic) LMX_FUNCTION(cublasLtMatmul)
#undef LMX_FUNCTION
#undef LMX_SIZE
#undef LMX_VALUE
      // clang-format on
      add_cudnn(t);
  value("offset of algo", offsetof(cublasLtMatmulHeuristicResult_t, algo));
  value("offset of workspaceSize", offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  value("offset of state", offsetof(cublasLtMatmulHeuristicResult_t, state));
  return t;
}

}  // namespace
}  // namespace cuda_drift
