// What every preparation does around its work: check the corpus, choose folder and threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sources.h"
#include "lmx/api.h"
#include "lmx/corpora.h"

namespace lmx::data {

// Each file's SHA-256 against the registry's, or, where that has none, against what its first use recorded in the
// cache. Nothing is checked of files that are no corpus's (null). UserError names both sums.
LMX_API void verify_checksums(const Corpus* corpus, const std::string& directory, const std::vector<SourceFile>& files,
                              const std::string& cache_dir);

LMX_API std::string cache_directory(const std::string& configured);  // "": the default one
LMX_API int preparing_threads(int64_t configured);                   // 0: all cores

}  // namespace lmx::data
