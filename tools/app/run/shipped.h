// Folders that come with lmx.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lmx_cli {

// Returns the folder `name` ("recipes", "experiments") of the source tree that this program was built in, or of the
// prefix that it is installed in. nullopt: lmx was installed without it.
std::optional<std::filesystem::path> shipped_folder(const std::string& name);

}  // namespace lmx_cli
