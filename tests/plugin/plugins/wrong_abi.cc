// What a plugin of another ABI looks like: only `size` and `abi` may be read; the rest would crash whoever did.
#include "lmx/plugin.h"

struct ForeignDescriptor {
  uint32_t size;
  int32_t abi;
  const char* wild[6];
};

extern "C" LMX_API const void* lmx_plugin() {
  static const ForeignDescriptor descriptor{
      sizeof(ForeignDescriptor), TEST_ABI, {reinterpret_cast<const char*>(8), reinterpret_cast<const char*>(16)}};
  return &descriptor;
}
