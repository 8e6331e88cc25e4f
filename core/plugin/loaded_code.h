// Which plugin a thread is in.
#pragma once

#include "lmx/plugin.h"

namespace lmx {

// Notes the addresses of a loaded plugin's code. `info` must keep its address.
void note_loaded_code(const PluginInfo& info);

struct CodePlace {
  const PluginInfo* plugin = nullptr;  // null: lmx's own code, or none can be named
  const char* function = nullptr;
};
// For a signal handler with SA_SIGINFO, whose third argument is `context`: the plugin whose instruction was running, else
// the one that this thread has called.
CodePlace place_of_crash(void* context);

}  // namespace lmx
