// Finds the plugin whose code a thread is executing.
#pragma once

#include "lmx/plugin.h"

namespace lmx {

// Records the addresses of a loaded plugin's code. `info` must keep its address.
void note_loaded_code(const PluginInfo& info);

struct CodePlace {
  const PluginInfo* plugin = nullptr;  // null: lmx's own code, or unknown
  const char* function = nullptr;
};
// For a signal handler with SA_SIGINFO, whose third argument is `context`: the plugin whose code was running, otherwise
// the plugin that this thread has called.
CodePlace place_of_crash(void* context);

}  // namespace lmx
