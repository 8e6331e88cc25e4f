// Unpacking what corpora come in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx::data {

// Extracts the regular files of a .tar or .tar.gz below `folder`, without the first `strip` folders of their names,
// each under a temporary name that is renamed when it is whole. Returns their names. UserError: damaged, or a name that
// leads out of `folder`. RunError: a full disk.
std::vector<std::string> unpack_tar(const std::string& archive, const std::string& folder, int64_t strip);
// Decompresses a .gz file into `path`.
void unpack_gz(const std::string& archive, const std::string& path);

}  // namespace lmx::data
