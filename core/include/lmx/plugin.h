// Plugins: shared libraries that add models, sync strategies, batchers, communicators, losses, optimizers,
// schedules, codecs and metrics.
//
// A plugin's source ends with one line, which names its class or a function of the kind's type Factory, for example
//     LMX_PLUGIN(batcher, random_windows, RandomWindowsConfig, RandomWindows)
//     LMX_PLUGIN(batcher, tbptt, TbpttConfig, make_tbptt)
// A class is constructed from its config, the config's path if the constructor takes a string there, and the arguments
// that the kind's Factory has after the path.
// The file plugin.toml is located beside it (name, kind, version, licence, summary). The line exports one C symbol,
// `lmx_plugin`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lmx/api.h"
#include "lmx/config.h"

namespace lmx {

enum class PluginKind : uint32_t { model, sync, batcher, comm, loss, optimizer, schedule, codec, metric };
LMX_API const char* name_of(PluginKind kind);

using AnyFactory = void (*)();  // cast to the kind's own factory type

// The exported symbol. Append-only. A reader may access only the first `size` bytes.
struct PluginDescriptor {
  uint32_t size;
  int32_t abi;           // kAbi of the build
  const char* build_id;  // LMX_FULL_BUILD_ID of the build
  PluginKind kind;
  const char* name;
  std::vector<FieldInfo> (*fields)();
  Node (*full_config)(const Node& given, const std::string& path);  // checked, with all defaults
  AnyFactory factory;
  // The traits of the component with this config (lmx/config.h), returned by the config's `Traits traits() const` if it
  // has that function.
  Traits (*traits)(const Node& given, const std::string& path);
};

// The part of the build id that is defined on the compiler's command line: the hash of core/include/lmx and the
// sanitizers.
#ifndef LMX_BUILD_ID
#define LMX_BUILD_ID "unknown"
#endif

// The part of the build id that comes from the compiler: the C++ library, and the modes that change the size or the
// layout of its types. g++ and clang++ share one C++ ABI on Linux, so the compiler is not part of the build id. The
// release of libstdc++ is not part of it either: these headers use only types whose layout every release since g++ 5
// keeps (tests/style has the list).
#if defined(_LIBCPP_VERSION)
#define LMX_CXX_LIBRARY "libc++"
#elif defined(_GLIBCXX_RELEASE)
#if _GLIBCXX_RELEASE < 12
#error "lmx needs g++ 12 or newer, or clang++ with the C++ library of g++ 12 or newer (docs/plugins.md)"
#endif
#define LMX_CXX_LIBRARY "libstdc++"
#else
#define LMX_CXX_LIBRARY "other-library"
#endif
#ifdef _GLIBCXX_DEBUG
#define LMX_DEBUG_CONTAINERS "-glibcxx_debug"
#else
#define LMX_DEBUG_CONTAINERS ""
#endif
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0
#define LMX_OLD_STRINGS "-old_string_abi"
#else
#define LMX_OLD_STRINGS ""
#endif
#define LMX_FULL_BUILD_ID LMX_BUILD_ID "-" LMX_CXX_LIBRARY LMX_DEBUG_CONTAINERS LMX_OLD_STRINGS

struct PluginInfo {
  std::string name, kind, version, licence, summary;
  std::string path;  // of the library
  std::string hash;  // SHA-256 of the library; "" until find() has loaded it
  const PluginDescriptor* descriptor = nullptr;
};

// Hex SHA-256 of a file. UserError if it cannot be read.
LMX_API std::string file_sha256(const std::string& path);

// A plugin and the fields of its config.
struct PluginDescription {
  PluginInfo plugin;
  std::string build_id;
  std::vector<FieldInfo> fields;
};
// NAME.fields.toml beside the library contains the plugin's fields, so that describe() need not load it.
// description_file(): the path of that file. description_text(): its contents, for a loaded plugin; UserError if the
// library has no build id from the linker.
LMX_API std::string description_file(const PluginInfo& info);
LMX_API std::string description_text(const PluginInfo& loaded);

// All components that a recipe can name. There is one instance, filled by explicit calls. Plugins are found first,
// loaded when they are first used, and never unloaded. Thread-safe.
class LMX_API Registry {
 public:
  static Registry& instance();
  // Adds a folder of plugins (searched for */NAME.so with plugin.toml beside it). A later folder does not override an
  // earlier one: a second plugin of the same kind and name is a UserError that names both files.
  void add_directory(const std::string& directory);
  // Build tree or install prefix (found from this library's own path), then LMX_PLUGIN_PATH.
  void add_default_directories();
  std::vector<PluginInfo> list();  // sorted by kind and name; loads nothing
  // Loads on first use. UserError: unknown name (with the nearest), wrong ABI or build, missing symbol.
  const PluginInfo& find(PluginKind kind, const std::string& name);
  // find() for the component that `node` names by its key `name`.
  const PluginInfo& find(PluginKind kind, const Node& node, const std::string& path);
  // The fields of a plugin, from the description that its build stored beside it. If that file is missing or describes
  // another library, the plugin is loaded. UserError as for find().
  PluginDescription describe(PluginKind kind, const std::string& name);

 private:
  Registry();
  struct Impl;
  Impl* impl_;
};

// The factory of a plugin, with its kind's own type: factory<ModelFactory>(info).
template <class Factory>
Factory factory(const PluginInfo& info) {
  return reinterpret_cast<Factory>(info.descriptor->factory);
}

// To be called in an exception handler: rethrows lmx's own errors unchanged, and every other exception as a UserError
// that names the plugin's file.
[[noreturn]] LMX_API void rethrow_for(const PluginInfo& info);

// Marks that this thread is inside `function` of a plugin, for the line that is written at a crash
// (lmx/launch.h).
class LMX_API PluginCall {
 public:
  // `function` is a literal, such as "forward()"; `info` is one that the registry owns.
  PluginCall(const PluginInfo& info, const char* function);
  ~PluginCall();
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
  const PluginInfo& plugin() const { return *plugin_; }
  const char* function() const { return function_; }
  // The innermost call of this thread; null outside of plugins.
  static const PluginCall* current();
  // To be called in an exception handler: rethrows a UserError or InternalError with the function and the plugin's
  // kind, name and file at its end, other errors of lmx and std::bad_alloc unchanged, and every other exception as a
  // RunError that begins with them. The innermost of nested calls is named.
  [[noreturn]] void rethrow() const;

 private:
  const PluginInfo* plugin_;
  const char* function_;
  const PluginCall* outer_;
};

// Calls a function of a plugin, so that an error in it names the plugin:
//     in_plugin(info, "forward()", [&] { return model.forward(ctx, params, batch, state); })
template <class Body>
auto in_plugin(const PluginInfo& info, const char* function, Body&& body) -> decltype(body()) {
  const PluginCall call(info, function);
  try {
    return body();
  } catch (...) {
    call.rethrow();
  }
}

// Calls the factory: create<BatcherFactory>(info, config, path, env). If it throws an exception that is not an
// lmx::Error: UserError that names the file.
template <class Factory, class... Args>
auto create(const PluginInfo& info, Args&&... args) {
  try {
    return factory<Factory>(info)(std::forward<Args>(args)...);
  } catch (...) {
    rethrow_for(info);
  }
}

// Checks a component's subtree against its plugin's fields and adds the defaults; `name` stays first.
LMX_API Node full_component(PluginKind kind, const Node& node, const std::string& path);

// The value of a trait of the component that `node` names; "" if it does not have the trait.
LMX_API std::string trait_of(PluginKind kind, const Node& node, const std::string& path, const char* trait);

template <class Config>
Traits traits_of(const Node& given, const std::string& path) {
  if constexpr (requires(const Config c) { c.traits(); }) return read_config<Config>(given, path).traits();
  return {};
}

template <class Component, class Config, class Base, class... Rest>
AnyFactory constructor_of(std::unique_ptr<Base> (*)(const Node&, const std::string&, Rest...)) {
  const typename Component::Factory make = [](const Node& config, const std::string& path, Rest... rest) {
    if constexpr (std::is_constructible_v<Component, Config, const std::string&, Rest...>)
      return std::unique_ptr<Base>(std::make_unique<Component>(read_config<Config>(config, path), path, rest...));
    else
      return std::unique_ptr<Base>(std::make_unique<Component>(read_config<Config>(config, path), rest...));
  };
  return reinterpret_cast<AnyFactory>(make);
}
// The factory that LMX_PLUGIN exports for a class, and for a function.
template <class Component, class Config>
AnyFactory exported_factory() {
  return constructor_of<Component, Config>(typename Component::Factory{});
}
template <auto function, class Config>
AnyFactory exported_factory() {
  return reinterpret_cast<AnyFactory>(function);
}

}  // namespace lmx

// ABI and build id are also stored in a section of the library, so that an incompatible library is detected before any
// of its code runs.
#define LMX_PLUGIN(kind_, name_, Config_, factory_)                             \
  [[gnu::used, gnu::section(".lmx.build")]] static constexpr struct {           \
    int32_t abi;                                                                \
    char build_id[sizeof(LMX_FULL_BUILD_ID)];                                   \
  } lmx_plugin_build{::lmx::kAbi, LMX_FULL_BUILD_ID};                           \
  extern "C" LMX_API const ::lmx::PluginDescriptor* lmx_plugin() {              \
    static const ::lmx::PluginDescriptor descriptor{                            \
        sizeof(::lmx::PluginDescriptor),                                        \
        ::lmx::kAbi,                                                            \
        LMX_FULL_BUILD_ID,                                                      \
        ::lmx::PluginKind::kind_,                                               \
        #name_,                                                                 \
        [] { return ::lmx::describe_config<Config_>(); },                       \
        [](const ::lmx::Node& given, const std::string& path) {                 \
          return ::lmx::write_config(::lmx::read_config<Config_>(given, path)); \
        },                                                                      \
        ::lmx::exported_factory<factory_, Config_>(),                           \
        ::lmx::traits_of<Config_>};                                             \
    return &descriptor;                                                         \
  }
