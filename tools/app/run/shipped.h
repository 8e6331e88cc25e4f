// Folders that come with lmx.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lmx_cli {

// The folder `name` ("recipes", "experiments") of the tree that this program was built in, or of the prefix that it is
// installed in. nullopt where lmx came without it.
std::optional<std::filesystem::path> shipped_folder(const std::string& name);

}  // namespace lmx_cli
