#include "plugin/elf.h"

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "lmx/error.h"

namespace lmx {
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

}  // namespace lmx
