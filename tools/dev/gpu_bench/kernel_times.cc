// Records when each kernel, copy and fill of a process ran on the GPU, by NVIDIA's CUPTI:
//   CUDA_INJECTION64_PATH=build-cuda/lib/liblmx_kernel_times.so LMX_KERNEL_TIMES=FILE PROGRAM
// The driver loads this library and calls InitializeInjection(). FILE gets a line for each operation when the process
// ends: "start_ns end_ns blocks name". tools/dev/gpu_bench/tables.py makes a table of them.
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Operation {
  uint64_t start, end;
  int64_t blocks;           // 0: no kernel
  const std::string* name;  // mangled
};

// CUPTI calls completed() in a thread, so the records have a lock. They are never destroyed, because that thread may
// outlive the destructors of static objects.
struct Records {
  std::mutex mutex;
  std::vector<Operation> operations;
  std::unordered_map<std::string, std::string> names;  // mangled, demangled
};
Records& records() {
  static auto* all = new Records;
  return *all;
}

decltype(&cuptiActivityGetNextRecord) next_record;
decltype(&cuptiActivityFlushAll) flush_all;

std::string demangled(const char* name) {
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &failed),
                                                         &std::free);
  return text ? text.get() : name;
}

template <typename Activity>
void add(const Activity& a, int64_t blocks, const char* name) {
  const auto [known, added] = records().names.try_emplace(name);
  if (added) known->second = demangled(name);
  records().operations.push_back({a.start, a.end, blocks, &known->second});
}

const char* direction(uint8_t kind) {
  return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "[copy to the GPU]"
         : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "[copy to the host]"
                                                   : "[copy on the GPU]";
}

// Newer versions of CUPTI write longer structures that begin with these.
void add_record(const CUpti_Activity& record) {
  if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
    add(kernel, int64_t{kernel.gridX} * kernel.gridY * kernel.gridZ, kernel.name);
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy5&>(record);
    add(copy, 0, direction(copy.copyKind));
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    add(reinterpret_cast<const CUpti_ActivityMemset4&>(record), 0, "[fill]");
  }
}

void CUPTIAPI requested(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *bytes = size_t{8} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *bytes));
  *most_records = 0;  // as many as fit
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t bytes) {
  const std::lock_guard<std::mutex> lock(records().mutex);
  CUpti_Activity* record = nullptr;
  while (bytes > 0 && next_record(buffer, bytes, &record) == CUPTI_SUCCESS) add_record(*record);
  std::free(buffer);
}

void write_records() {
  flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard<std::mutex> lock(records().mutex);
  const char* path = std::getenv("LMX_KERNEL_TIMES");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) {
    std::fprintf(stderr, "kernel_times: LMX_KERNEL_TIMES names no file that can be written\n");
    return;
  }
  for (const Operation& o : records().operations)
    std::fprintf(file, "%" PRIu64 " %" PRIu64 " %" PRId64 " %s\n", o.start, o.end, o.blocks, o.name->c_str());
  std::fclose(file);
}

// CUPTI is found at run time, so that a machine without it gets a message and not a process that does not start.
template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

const char* start_recording() {
  void* library = dlopen(LMX_CUPTI_LIBRARY, RTLD_NOW);
  if (!library) return dlerror();
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  if (!find(library, "cuptiActivityEnable", enable) ||
      !find(library, "cuptiActivityRegisterCallbacks", register_callbacks) ||
      !find(library, "cuptiActivityGetNextRecord", next_record) || !find(library, "cuptiActivityFlushAll", flush_all))
    return "a function is missing in " LMX_CUPTI_LIBRARY;
  if (register_callbacks(requested, completed) != CUPTI_SUCCESS) return "CUPTI does not accept the callbacks";
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    if (enable(kind) != CUPTI_SUCCESS) return "CUPTI does not record kernels here";
  std::atexit(write_records);
  return nullptr;
}

}  // namespace

// The name and the result (1: success) are those that the CUDA driver expects.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static const char* const error = start_recording();
  if (error) std::fprintf(stderr, "kernel_times: %s\n", error);
  return 1;
}
