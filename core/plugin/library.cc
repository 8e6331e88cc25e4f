#include "plugin/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <boost/dll/shared_library.hpp>
#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <sstream>
#include <typeinfo>
#include <vector>

#include "backend/cuda.h"
#include "base/files.h"
#include "base/sha256.h"
#include "lmx/error.h"
#include "plugin/manifest.h"

namespace lmx {
namespace {

namespace dll = boost::dll;
using Entry = const PluginDescriptor*();

constexpr const char* kHowToInstall =
    "Debian and Ubuntu: apt-get install g++-12; without root: conda install -c conda-forge gxx=12";

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

// The plugin's compiler came with a newer C++ library than the one with which lmx runs here.
std::string compiler_hint(const std::string& reason) {
  if (reason.find("version `GLIBCXX_") == std::string::npos) return "";
  return str("; build the plugin with g++-", _GLIBCXX_RELEASE, ", as this lmx was (", kHowToInstall, ")");
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
    const std::string why = reason(e, path);
    throw UserError(str("[plugin] ", path, ": cannot be loaded: ", why, compiler_hint(why),
                        needs.empty() ? "" : "; this plugin needs " + needs));
  }
}

[[noreturn]] void refuse_abi(const PluginInfo& info, int32_t abi) {
  throw UserError(str("[plugin] ", info.path, ": built for ABI ", abi, ", this lmx (", kVersion, ") has ABI ", kAbi,
                      "; rebuild the plugin"));
}

void check_build_id(const PluginInfo& info, std::string_view build_id) {
  if (build_id == LMX_FULL_BUILD_ID) return;
  const bool other_library = build_id.find("-libstdc++") == std::string_view::npos;
  throw UserError(str("[plugin] ", info.path, ": built with ", build_id, ", this lmx with ", LMX_FULL_BUILD_ID,
                      " (hash of the headers, sanitizers, C++ library and its modes); rebuild the plugin",
                      other_library ? str(" with g++ 12 or newer (", kHowToInstall, ") or clang++ -stdlib=libstdc++")
                                    : " against the headers of this lmx"));
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

const char* own_build_id() {
  return LMX_FULL_BUILD_ID;
}

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

namespace {

class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : in_(path, std::ios::binary) {
    std::error_code none;
    const uintmax_t size = std::filesystem::file_size(path, none);
    size_ = none ? 0 : size;
    is_elf_ = read(0, &header_, sizeof header_) && std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0;
  }
  bool is_elf() const { return is_elf_; }
  bool is_library() const { return is_elf_ && header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_type == ET_DYN; }
  const Elf64_Ehdr& header() const { return header_; }
  bool holds(uint64_t offset, uint64_t bytes) const { return bytes <= size_ && offset <= size_ - bytes; }
  bool read(uint64_t offset, void* to, uint64_t bytes) {
    if (!holds(offset, bytes)) return false;
    in_.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
  }
  std::string text(const Elf64_Shdr& section) {
    if (section.sh_type == SHT_NOBITS || !holds(section.sh_offset, section.sh_size)) return "";
    std::string bytes(section.sh_size, '\0');
    return read(section.sh_offset, bytes.data(), bytes.size()) ? bytes : "";
  }

 private:
  std::ifstream in_;
  uint64_t size_ = 0;
  Elf64_Ehdr header_{};
  bool is_elf_ = false;
};

}  // namespace

// The loader maps a truncated library without an error, and the process dies of SIGBUS at the first missing page.
void check_elf(const std::string& path) {
  ElfFile file(path);
  const auto fail = [&](const char* why) { throw UserError(str("[plugin] ", path, ": cannot be loaded: ", why)); };
  if (!file.is_elf()) fail("it is no shared library");
  if (!file.is_library()) fail("it is no 64-bit shared library");
  for (uint64_t i = 0; i < file.header().e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!file.read(file.header().e_phoff + i * sizeof segment, &segment, sizeof segment)) fail("the file is truncated");
    if (!file.holds(segment.p_offset, segment.p_filesz)) fail("the file is truncated");
  }
}

std::string elf_section(const std::string& path, std::string_view name) {
  ElfFile file(path);
  if (!file.is_library()) return "";
  std::vector<Elf64_Shdr> sections(file.header().e_shnum);
  if (!file.read(file.header().e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return "";
  if (file.header().e_shstrndx >= sections.size()) return "";
  const std::string names = file.text(sections[file.header().e_shstrndx]);
  for (const Elf64_Shdr& section : sections)
    if (section.sh_name < names.size() && name == names.c_str() + section.sh_name) return file.text(section);
  return "";
}

namespace {

// The linker's hash of the library's contents; "" if the library was linked without one. Unlike the file's time and
// bytes, it does not change when the library is installed, stripped or copied.
std::string link_id(const std::string& path) {
  constexpr size_t kHeader = 16;  // of the ELF note: three sizes and "GNU"
  const std::string note = elf_section(path, ".note.gnu.build-id");
  return note.size() <= kHeader ? "" : hexadecimal(std::string_view(note).substr(kHeader));
}

}  // namespace

std::string core_library() {
  Dl_info info{};
  LMX_CHECK(dladdr(reinterpret_cast<const void*>(&core_library), &info) != 0 && info.dli_fname);
  return std::filesystem::canonical(info.dli_fname);
}

std::optional<std::vector<FieldInfo>> described_fields(const PluginInfo& info) {
  std::ifstream in(description_file(info), std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  std::optional<FieldsFile> file = parse_fields_file(text.str());
  const std::string library = link_id(info.path), core = link_id(core_library());
  if (!file || library.empty() || core.empty() || file->kind != info.kind || file->library != library ||
      file->core != core)
    return std::nullopt;
  return std::move(file->fields);
}

std::string description_file(const PluginInfo& info) {
  return std::filesystem::path(info.path).replace_extension(".fields.toml");
}

std::string description_text(const PluginInfo& loaded) {
  const std::string library = link_id(loaded.path);
  if (library.empty())
    throw UserError(str("[plugin] ", loaded.path,
                        ": has no build id of the linker's, by which a description is known to be of this library; "
                        "link it with -Wl,--build-id"));
  FieldsFile file{loaded.kind, library, link_id(core_library()), {}};
  try {
    file.fields = loaded.descriptor->fields();
  } catch (...) {
    rethrow_for(loaded);
  }
  return str("# What ", loaded.name, ".so reads, written when it was built (lmx plugins describe).\n",
             fields_file_text(file));
}

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

namespace {

// An error whose text names the plugin's function in which it was thrown.
template <class Kind>
struct Placed : Kind {
  using Kind::Kind;
};

}  // namespace

void PluginCall::rethrow() const {
  const std::string place =
      str(function_, " of the ", plugin_->kind, " plugin '", plugin_->name, "' (", plugin_->path, ")");
  const auto text = [&](const char* why) { return str("[plugin] ", place, " failed with: ", why); };
  const auto placed = [&]<class Kind>(const Kind& e) {
    if (typeid(e) != typeid(Kind)) throw;  // a subclass, which a caller may catch
    throw Placed<Kind>(str(e.what(), " (in ", place, ")"));
  };
  try {
    throw;
  } catch (const UserError& e) {
    placed(e);
  } catch (const InternalError& e) {
    placed(e);
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
