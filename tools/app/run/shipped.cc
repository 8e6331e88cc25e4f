#include "app/run/shipped.h"

#include "lmx/launch.h"

namespace lmx_cli {

namespace fs = std::filesystem;

std::optional<fs::path> shipped_folder(const std::string& name) {
  std::error_code error;
  const fs::path root = fs::path(lmx::own_program()).parent_path().parent_path();  // <prefix>, or <source>/build
  if (const fs::path installed = root / "share" / "lmx" / name; fs::is_directory(installed, error)) return installed;
  // Without this file, the folder above is not a source tree but may be a user's folder, such as ~/recipes beside
  // ~/lmx.
  if (!fs::exists(root / "CMakeCache.txt", error)) return std::nullopt;
  const fs::path source = root.parent_path() / name;
  return fs::is_directory(source, error) ? std::optional(source) : std::nullopt;
}

}  // namespace lmx_cli
