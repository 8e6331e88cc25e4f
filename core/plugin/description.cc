#include "plugin/description.h"

#include <dlfcn.h>
#include <toml++/toml.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/hex.h"
#include "plugin/elf.h"

namespace lmx {
namespace {

constexpr std::array kParts{std::pair{"name", &FieldInfo::name}, std::pair{"type", &FieldInfo::type},
                            std::pair{"default", &FieldInfo::default_text}, std::pair{"range", &FieldInfo::range},
                            std::pair{"help", &FieldInfo::help}};

// The linker's hash of the library's contents, which, unlike its time and its bytes, installing, stripping and copying
// leave as it is; "" where it was linked without.
std::string link_id(const std::string& path) {
  constexpr size_t kHeader = 16;  // of the note: three sizes and "GNU"
  const std::string note = elf_section(path, ".note.gnu.build-id");
  return note.size() <= kHeader ? "" : hexadecimal(std::string_view(note).substr(kHeader));
}

std::optional<FieldInfo> field_of(const toml::node& node) {
  const toml::table* table = node.as_table();
  if (!table) return std::nullopt;
  FieldInfo field;
  for (const auto& [key, member] : kParts) {
    const auto text = (*table)[key].value_exact<std::string>();
    if (!text) return std::nullopt;
    field.*member = *text;
  }
  return field;
}

// The fields in such a text, whose kind, library and core must be these.
std::optional<std::vector<FieldInfo>> parse_description(const std::string& text, const std::string& kind,
                                                        const std::string& library, const std::string& core) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
  for (const auto& [key, expected] : {std::pair{"kind", kind}, {"library", library}, {"core", core}})
    if (expected.empty() || table[key].value_exact<std::string>() != expected) return std::nullopt;
  const toml::array* rows = table["fields"].as_array();
  if (!rows) return std::nullopt;
  std::vector<FieldInfo> fields;
  for (const toml::node& row : *rows) {
    const std::optional<FieldInfo> field = field_of(row);
    if (!field) return std::nullopt;
    fields.push_back(*field);
  }
  return fields;
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
  return parse_description(text.str(), info.kind, link_id(info.path), link_id(core_library()));
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
  toml::array fields;
  try {
    for (const FieldInfo& field : loaded.descriptor->fields()) {
      toml::table row;
      for (const auto& [key, member] : kParts) row.insert(key, field.*member);
      fields.push_back(std::move(row));
    }
  } catch (...) {
    rethrow_for(loaded);
  }
  std::ostringstream out;
  out << "# What " << loaded.name << ".so reads, written when it was built (lmx plugins describe).\n"
      << toml::table{{"kind", loaded.kind}, {"library", library}, {"core", link_id(core_library())}, {"fields", fields}}
      << "\n";
  return out.str();
}

}  // namespace lmx
