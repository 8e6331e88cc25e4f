// Plugins that are broken before their factory is called, each in the way that TEST_FAULT chooses.
#include <cstddef>
#include <stdexcept>

#include "lmx/plugin.h"

#if TEST_FAULT == 1  // a shared library that is no plugin

extern "C" __attribute__((visibility("default"))) int not_lmx_plugin() {
  return 1;
}

#elif TEST_FAULT == 2  // the entry point throws

extern "C" LMX_API const lmx::PluginDescriptor* lmx_plugin() {
  throw std::runtime_error("no licence on this host");
}

#elif TEST_FAULT == 3  // a descriptor of the same ABI that ends before its factory

extern "C" LMX_API const lmx::PluginDescriptor* lmx_plugin() {
  static const lmx::PluginDescriptor descriptor{offsetof(lmx::PluginDescriptor, factory),
                                                lmx::kAbi,
                                                LMX_FULL_BUILD_ID,
                                                lmx::PluginKind::batcher,
                                                "test_short",
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr};
  return &descriptor;
}

#elif TEST_FAULT == 4  // calls a function which this lmx does not have

namespace lmx {
LMX_API int of_another_release();
}

namespace {
struct EmptyConfig {
  void fields(lmx::Fields&) {}
};
int make(const lmx::Node&, const std::string&) {
  return lmx::of_another_release();
}
}  // namespace

LMX_PLUGIN(batcher, test_unresolved, EmptyConfig, make)

#elif TEST_FAULT == 5  // of another ABI: only `size` and `abi` may be read; the rest would crash whoever did

struct ForeignDescriptor {
  uint32_t size;
  int32_t abi;
  const char* wild[6];
};

extern "C" LMX_API const void* lmx_plugin() {
  static const ForeignDescriptor descriptor{
      sizeof(ForeignDescriptor), 41, {reinterpret_cast<const char*>(8), reinterpret_cast<const char*>(16)}};
  return &descriptor;
}

#endif
