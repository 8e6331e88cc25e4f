#include "plugin/library.h"

#include <dlfcn.h>

#include <boost/dll/shared_library.hpp>
#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>

#include "backend/cuda.h"
#include "base/files.h"
#include "plugin/elf.h"
#include "plugin/manifest.h"

namespace lmx {
namespace {

namespace dll = boost::dll;
using Entry = const PluginDescriptor*();

// The loader's reason why a library cannot be loaded. Boost adds the name of a function and an unrelated errno to this
// text, so the loader is asked again.
std::string reason(const std::system_error& error, const std::string& path) {
  if (void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    dlclose(loaded);
    return error.what();
  }
  const std::string text = dlerror();
  return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
}

dll::shared_library& open_library(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw UserError(str("[plugin] ", path, " is missing, but its folder contains plugin.toml; build the plugin"));
  }
  check_elf(path);
  try {
    // Never destroyed, see load_plugin(). Reachable until the process ends, so leak checkers report nothing.
    static std::mutex mutex;
    static auto& handles = *new std::deque<dll::shared_library>;
    const std::lock_guard lock(mutex);
    return handles.emplace_back(path, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
  } catch (const std::system_error& e) {
    const std::string needs = needs_of(std::filesystem::path(path).parent_path() / "plugin.toml");
    throw UserError(str("[plugin] ", path, ": cannot be loaded: ", reason(e, path),
                        needs.empty() ? "" : "; this plugin needs " + needs));
  }
}

[[noreturn]] void refuse_abi(const PluginInfo& info, int32_t abi) {
  throw UserError(str("[plugin] ", info.path, ": built for ABI ", abi, ", this lmx (", kVersion, ") has ABI ", kAbi,
                      "; rebuild the plugin"));
}

void check_build_id(const PluginInfo& info, std::string_view build_id) {
  if (build_id != LMX_FULL_BUILD_ID)
    throw UserError(str("[plugin] ", info.path, ": built with ", build_id, ", this lmx with ", LMX_FULL_BUILD_ID,
                        " (hash of the headers, sanitizers, C++ library and its modes); rebuild the plugin"));
}

void check_descriptor(const PluginInfo& info, const PluginDescriptor* d) {
  const std::string start = str("[plugin] ", info.path, ": ");
  if (!d) throw UserError(start + "lmx_plugin() returns no descriptor; rebuild the plugin");
  // `abi` is checked first: the other members are defined only if it is equal.
  if (d->size < offsetof(PluginDescriptor, build_id) || d->abi != kAbi) refuse_abi(info, d->abi);
  if (d->size < sizeof(PluginDescriptor)) {
    throw UserError(str(start, "its descriptor has ", d->size, " bytes, this lmx (", kVersion, ") needs ",
                        sizeof(PluginDescriptor), "; rebuild the plugin"));
  }
  check_build_id(info, d->build_id);
  if (info.kind != name_of(d->kind) || d->name != info.name) {
    throw UserError(str(start, "the library is ", name_of(d->kind), " '", d->name, "', plugin.toml beside it says ",
                        info.kind, " '", info.name, "'"));
  }
}

}  // namespace

std::string check_build(const PluginInfo& info) {
  const std::string section = elf_section(info.path, ".lmx.build");
  int32_t abi = 0;
  if (section.size() <= sizeof abi) return "";
  std::memcpy(&abi, section.data(), sizeof abi);
  const std::string build_id = section.c_str() + sizeof abi;
  if (abi != kAbi) refuse_abi(info, abi);
  check_build_id(info, build_id);
  return build_id;
}

const PluginDescriptor* load_plugin(const PluginInfo& info) {
  check_build(info);
  dll::shared_library& library = open_library(info.path);
  if (!library.has("lmx_plugin")) {
    throw UserError(
        str("[plugin] ", info.path, ": the symbol lmx_plugin is missing; a plugin's source ends with LMX_PLUGIN(...)"));
  }
  const PluginDescriptor* descriptor = nullptr;
  try {
    descriptor = library.get<Entry>("lmx_plugin")();
  } catch (const std::exception& e) {
    throw UserError(str("[plugin] ", info.path, ": lmx_plugin() failed: ", e.what()));
  }
  check_descriptor(info, descriptor);
  load_plugin_cuda(info.path);
  return descriptor;
}

std::string file_sha256(const std::string& path) {
  return sha256_of_file(path);
}

}  // namespace lmx
