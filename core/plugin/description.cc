#include "plugin/description.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/hex.h"
#include "plugin/elf.h"
#include "plugin/fields_file.h"

namespace lmx {
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

}  // namespace lmx
