// Unpacks the archives of corpora.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx::data {

// Extracts the regular files of a .tar or .tar.gz below `folder`, without the first `strip` folders of their names.
// Each file is written under a temporary name and renamed when it is complete. Returns their names. UserError: a
// damaged archive, or a name outside of `folder`. RunError: a full disk.
std::vector<std::string> unpack_tar(const std::string& archive, const std::string& folder, int64_t strip);
// Decompresses a .gz file into `path`.
void unpack_gz(const std::string& archive, const std::string& path);

}  // namespace lmx::data
