// Replacing a file as a whole.
#pragma once

#include <functional>
#include <string>

namespace lmx::train {

// `write` fills the temporary file that it is given the name of; that file then takes the place of `path`, and the
// folder is synced. Nothing is left behind where either fails; RunError names the path that cannot be replaced.
void replace_atomically(const std::string& path, const std::function<void(const std::string& temporary)>& write);

}  // namespace lmx::train
