// What every preparation does around its work: check the corpus, choose folder and threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"

namespace lmx::data {

// Each file's SHA-256 against the registry's, or, where that has none, against what its first use recorded in the
// cache. Nothing is checked of files that are no corpus's (null). UserError names both sums.
void verify_checksums(const Corpus* corpus, const std::string& directory, const std::vector<SourceFile>& files,
                      const std::string& cache_dir);

std::string cache_directory(const std::string& configured);  // "": the default one
int preparing_threads(int64_t configured);                   // 0: all cores

}  // namespace lmx::data
