// What the file of a shared library says, without loading it.
#pragma once

#include <string>
#include <string_view>

namespace lmx {

// UserError that names the file and why the loader could not load it, or would die of it: no ELF, no 64-bit library,
// truncated.
void check_elf(const std::string& path);

// The bytes of a section (".note.gnu.build-id"); "" where the file has no such section, or is no ELF file.
std::string elf_section(const std::string& path, std::string_view name);

}  // namespace lmx
