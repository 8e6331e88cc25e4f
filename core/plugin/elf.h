// Reads the file of a shared library without loading it.
#pragma once

#include <string>
#include <string_view>

namespace lmx {

// UserError with the file and the reason if the loader could not load it or would crash: not ELF, not a 64-bit library,
// truncated.
void check_elf(const std::string& path);

// The bytes of a section (".note.gnu.build-id"); "" if the file has no such section or is not an ELF file.
std::string elf_section(const std::string& path, std::string_view name);

}  // namespace lmx
