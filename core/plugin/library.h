// A plugin's shared library: its file, loading it, describing its fields beside it, and finding the plugin whose code a
// thread is executing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

// LMX_FULL_BUILD_ID of this core, which plugins must have.
const char* own_build_id();

// The build id that is stored in the library's file, read without loading it; "" if the file has none, and then only
// loading shows whether it fits. UserError as for load_plugin() if ABI or build differ from this lmx.
std::string check_build(const PluginInfo& info);

// Loads `info.path` permanently and returns its descriptor. Handles are never closed, because objects, exceptions and
// functions of a plugin outlive every scope. UserError that names the file: missing, not a shared library, unresolved
// symbols, no `lmx_plugin`, another ABI or build, a kind or name that differs from plugin.toml.
const PluginDescriptor* load_plugin(const PluginInfo& info);

// Reads the file of a shared library without loading it.

// UserError with the file and the reason if the loader could not load it or would crash: not ELF, not a 64-bit library,
// truncated.
void check_elf(const std::string& path);

// The bytes of a section (".note.gnu.build-id"); "" if the file has no such section or is not an ELF file.
std::string elf_section(const std::string& path, std::string_view name);

// NAME.fields.toml beside NAME.so: the fields of a plugin, written by its build, which loads the library once.

// The fields in the description beside `info.path`. nullopt if there is none for exactly this library and this core, or
// if it cannot be read; the library must then be loaded.
std::optional<std::vector<FieldInfo>> described_fields(const PluginInfo& info);

// The path of the library that contains this code.
std::string core_library();

// Finds the plugin whose code a thread is executing.

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
