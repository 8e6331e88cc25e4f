#include "plugin/loaded_code.h"

#include <link.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <new>

namespace lmx {
namespace {

// Read in signal handlers, so it is neither a container nor protected by a lock: entries are appended and never change.
struct Code {
  const PluginInfo* plugin;
  uintptr_t begin, end;
};
constexpr size_t kMost = 256;
std::array<Code, kMost> g_code;
std::atomic<size_t> g_known{0};

thread_local const PluginCall* t_innermost = nullptr;

// Callback of dl_iterate_phdr(): finds the address range of the library with the path of wanted->plugin.
int find_range(dl_phdr_info* library, size_t, void* wanted) {
  Code& code = *static_cast<Code*>(wanted);
  std::error_code error;
  if (!library->dlpi_name || !std::filesystem::equivalent(library->dlpi_name, code.plugin->path, error)) return 0;
  code.begin = UINTPTR_MAX;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
    code.begin = std::min(code.begin, begin);
    code.end = std::max(code.end, begin + segment.p_memsz);
  }
  return 1;
}

}  // namespace

void note_loaded_code(const PluginInfo& info) {
  Code code{&info, 0, 0};
  const size_t at = g_known.load();
  if (at == kMost || dl_iterate_phdr(find_range, &code) == 0) return;
  g_code[at] = code;
  g_known.store(at + 1);
}

CodePlace place_of_crash(void* context) {
  CodePlace place;
  if (t_innermost) place = {&t_innermost->plugin(), t_innermost->function()};
#ifdef __x86_64__
  const auto at = static_cast<uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  for (size_t i = 0; i < g_known.load(); ++i) {
    const Code& code = g_code[i];
    if (at < code.begin || at >= code.end) continue;
    return {code.plugin, code.plugin == place.plugin ? place.function : nullptr};
  }
#else
  static_cast<void>(context);
#endif
  return place;
}

PluginCall::PluginCall(const PluginInfo& info, const char* function)
    : plugin_(&info), function_(function), outer_(t_innermost) {
  t_innermost = this;
}

PluginCall::~PluginCall() {
  t_innermost = outer_;
}

const PluginCall* PluginCall::current() {
  return t_innermost;
}

void PluginCall::rethrow() const {
  const auto text = [this](const char* why) {
    return str("[plugin] ", function_, " of the ", plugin_->kind, " plugin '", plugin_->name, "' (", plugin_->path,
               ") failed with: ", why);
  };
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw RunError(text(e.what()));
  } catch (...) {
    throw RunError(text("an exception that is no std::exception"));
  }
}

}  // namespace lmx
